//! Kernels whose lanes talk to each other: shuffles and votes.

use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::words::{each_f32, each_u32, f32_at, put_f32, put_u32, u32_at};

const SHUFFLED: u32 = 1 << 16;
const VOTES: u32 = 1 << 16;
const BLOCK: usize = 256;
const WARP: usize = 32;

pub const SHUFFLE: Case = Case {
    name: "warp_shuffle",
    ptx: include_str!("../../ptx/warp_shuffle.ptx"),
    grid: [SHUFFLED / 128, 1, 1],
    block: [128, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, SHUFFLED),
        Buffer::words(Role::Input, SHUFFLED),
        Buffer::words(Role::Output, SHUFFLED / 32),
        Buffer::words(Role::Output, SHUFFLED),
        Buffer::words(Role::Output, SHUFFLED),
        Buffer::words(Role::Output, SHUFFLED),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::Buffer(3),
        Argument::Buffer(4),
        Argument::Buffer(5),
    ],
    fill: fill_shuffle,
    reference: shuffle,
};

pub const VOTE: Case = Case {
    name: "vote",
    ptx: include_str!("../../ptx/vote.ptx"),
    grid: [VOTES / BLOCK as u32, 1, 1],
    block: [BLOCK as u32, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Fixed,
    buffers: &[
        Buffer::words(Role::Input, VOTES),
        Buffer::words(Role::Output, VOTES),
        Buffer::words(Role::Output, VOTES / BLOCK as u32),
        Buffer::words(Role::Output, VOTES),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::Buffer(3),
    ],
    fill: |seed, index, bytes| {
        let mut random = seed.generator(510 + index as u64);
        each_u32(bytes, |_| random.u32());
    },
    reference: vote,
};

fn fill_shuffle(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(500 + index as u64);
    match index {
        0 => each_f32(bytes, |_| random.moderate()),
        _ => each_u32(bytes, |_| random.u32()),
    }
}

fn shuffle(buffers: &mut [&mut [u8]]) {
    let [x, y, sums, largest, scan, rotated] = buffers else {
        return;
    };
    for warp in 0..SHUFFLED as usize / WARP {
        let first = warp * WARP;
        put_f32(
            sums,
            warp,
            sum_down(core::array::from_fn(|lane| f32_at(x, first + lane))),
        );
        let ints: [i32; WARP] = core::array::from_fn(|lane| u32_at(y, first + lane).cast_signed());
        let high = ints.into_iter().fold(i32::MIN, i32::max);
        let mut running = 0i32;
        for (lane, value) in ints.into_iter().enumerate() {
            running = running.wrapping_add(value);
            put_u32(largest, first + lane, high.cast_unsigned());
            put_u32(scan, first + lane, running.cast_unsigned());
            let source = lane & !7 | (lane + 3) & 7;
            put_u32(rotated, first + lane, ints[source].cast_unsigned());
        }
    }
}

/// The sum that reaches lane 0, in the order of the kernel's steps.
fn sum_down(mut lanes: [f32; WARP]) -> f32 {
    for step in [16, 8, 4, 2, 1] {
        for lane in 0..step {
            lanes[lane] += lanes[lane + step];
        }
    }
    lanes[0]
}

fn vote(buffers: &mut [&mut [u8]]) {
    let [values, packed, counts, twins] = buffers else {
        return;
    };
    for block in 0..VOTES as usize / BLOCK {
        let first = block * BLOCK;
        let mut count = 0;
        for i in first..first + BLOCK {
            let value = u32_at(values, i);
            if value.is_multiple_of(3) {
                put_u32(packed, first + count, value);
                count += 1;
            }
        }
        put_u32(counts, block, count as u32);
    }
    for first in (0..VOTES as usize).step_by(WARP) {
        let warp: [u32; WARP] = core::array::from_fn(|lane| u32_at(values, first + lane));
        let high = warp.iter().any(|&value| value > 0xf800_0000);
        for (lane, value) in warp.into_iter().enumerate() {
            let key = value & 7;
            let same = warp.iter().filter(|&&other| other & 7 == key).count() as u32;
            let flags = u32::from(high) << 8 | u32::from(key != 5) << 9;
            put_u32(twins, first + lane, same | flags);
        }
    }
}
