//! Control flow: loops that diverge, calls, recursion, and a sort whose barriers sit in nested
//! loops.

use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::words::{each_u32, put_u32, put_u64, u32_at};

const WALKERS: u32 = 1 << 13;
const CALLERS: u32 = 1 << 14;
const RECURSIONS: u32 = 1 << 13;
/// Elements that one block sorts, with half as many threads.
const PART: u32 = 1024;
const PARTS: u32 = 24;

pub const COLLATZ: Case = Case {
    name: "collatz",
    ptx: include_str!("../../ptx/collatz.ptx"),
    grid: [WALKERS / 64, 1, 1],
    block: [64, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, WALKERS),
        Buffer::words(Role::Output, WALKERS),
        Buffer::long_words(Role::Output, WALKERS),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
    ],
    fill: |seed, index, bytes| fill((seed, index), bytes, |random| random % 1_000_000 + 1),
    reference: collatz,
};

pub const CALLS: Case = Case {
    name: "calls",
    ptx: include_str!("../../ptx/calls.ptx"),
    grid: [CALLERS / 128, 1, 1],
    block: [128, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, CALLERS),
        Buffer::words(Role::Output, CALLERS),
    ],
    arguments: &[Argument::Buffer(0), Argument::Buffer(1)],
    fill: |seed, index, bytes| fill((seed, 1 + index), bytes, |random| random),
    reference: calls,
};

pub const RECURSION: Case = Case {
    name: "recursion",
    ptx: include_str!("../../ptx/calls.ptx"),
    grid: [RECURSIONS / 64, 1, 1],
    block: [64, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, RECURSIONS),
        Buffer::words(Role::Output, RECURSIONS),
    ],
    arguments: &[Argument::Buffer(0), Argument::Buffer(1)],
    fill: |seed, index, bytes| fill((seed, 2 + index), bytes, |random| random),
    reference: recursion,
};

pub const BITONIC: Case = Case {
    name: "bitonic",
    ptx: include_str!("../../ptx/bitonic.ptx"),
    grid: [PARTS, 1, 1],
    block: [PART / 2, 1, 1],
    dynamic_shared: 4 * PART,
    geometry: Geometry::Fixed,
    buffers: &[Buffer::words(Role::InOut, PART * PARTS)],
    arguments: &[Argument::Buffer(0), Argument::U32(PART)],
    fill: |seed, index, bytes| fill((seed, 3 + index), bytes, |random| random),
    reference: sort_parts,
};

fn fill((seed, stream): (Seed, usize), bytes: &mut [u8], shape: fn(u32) -> u32) {
    let mut random = seed.generator(900 + stream as u64);
    each_u32(bytes, |_| shape(random.u32()));
}

fn collatz(buffers: &mut [&mut [u8]]) {
    let [starts, steps, peaks] = buffers else {
        return;
    };
    for i in 0..WALKERS as usize {
        let (mut count, mut peak) = (0u32, 0u64);
        for k in 0..=(i & 3) {
            let mut value = u64::from(u32_at(starts, i)) + k as u64;
            while value != 1 {
                value = if value & 1 == 1 {
                    3 * value + 1
                } else {
                    value >> 1
                };
                peak = peak.max(value);
                count += 1;
                if count > 5000 {
                    break;
                }
            }
        }
        put_u32(steps, i, count);
        put_u64(peaks, i, peak);
    }
}

fn calls(buffers: &mut [&mut [u8]]) {
    let [input, output] = buffers else { return };
    each_u32(output, |i| {
        let x = u32_at(input, i);
        let mut values: [u32; 16] = core::array::from_fn(|k| {
            let k = k as u32;
            x.wrapping_mul(2 * k + 1)
                .wrapping_add(k.wrapping_mul(0x9e37_79b9))
        });
        values.sort_unstable();
        (0..8u32).fold(0, |sum: u32, k| {
            let index = x.wrapping_add(3 * k) & 15;
            sum.wrapping_mul(31).wrapping_add(values[index as usize])
        })
    });
}

fn recursion(buffers: &mut [&mut [u8]]) {
    const FIBONACCI: [u32; 8] = [0, 1, 1, 2, 3, 5, 8, 13];
    let [input, output] = buffers else { return };
    each_u32(output, |i| FIBONACCI[u32_at(input, i) as usize & 7]);
}

fn sort_parts(buffers: &mut [&mut [u8]]) {
    let [values] = buffers else { return };
    for part in values.chunks_exact_mut(4 * PART as usize) {
        let mut sorted = [0; PART as usize];
        for (i, value) in sorted.iter_mut().enumerate() {
            *value = u32_at(part, i);
        }
        sorted.sort_unstable();
        each_u32(part, |i| sorted[i]);
    }
}
