//! Many threads into few words: block reduction, histogram, and every kind of atomic.

use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::rule::Rule;
use crate::words::{each_u32, put_f32, put_u32, put_u64, u32_at, u64_at};

const REDUCED: u32 = (1 << 17) + 77;
const COUNTED: u32 = (1 << 17) - 5;
const ATOMIC_THREADS: u32 = 1 << 15;

pub const BLOCK_REDUCE: Case = Case {
    name: "block_reduce",
    ptx: include_str!("../../ptx/block_reduce.ptx"),
    grid: [REDUCED.div_ceil(256), 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Fixed,
    // The totals: a 64-bit sum, a maximum, an exclusive-or, a float sum, a signed minimum.
    buffers: &[
        Buffer::words(Role::Input, REDUCED),
        Buffer::words(Role::Output, 6),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::U32(REDUCED),
    ],
    fill: fill_integers,
    reference: block_reduce,
};

pub const HISTOGRAM: Case = Case {
    name: "histogram",
    ptx: include_str!("../../ptx/histogram.ptx"),
    grid: [48, 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Loop,
    buffers: &[
        Buffer::words(Role::Input, COUNTED),
        Buffer::words(Role::Output, 256),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::U32(COUNTED),
    ],
    fill: fill_skewed,
    reference: histogram,
};

pub const ATOMICS: Case = Case {
    name: "atomics",
    ptx: include_str!("../../ptx/atomics.ptx"),
    grid: [ATOMIC_THREADS / 256, 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, ATOMIC_THREADS),
        Buffer {
            bytes: 4 * 80,
            role: Role::InOut,
            rule: Rule::Exact(4),
        },
        Buffer::long_words(Role::Output, 3),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
    ],
    fill: fill_atomics,
    reference: atomics,
};

fn fill_integers(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(400 + index as u64);
    each_u32(bytes, |_| random.u32());
}

/// Low bytes are commoner than high ones, so that some counters are crowded.
fn fill_skewed(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(410 + index as u64);
    each_u32(bytes, |_| random.u32() & random.u32());
}

fn fill_atomics(seed: Seed, index: usize, bytes: &mut [u8]) {
    if index == 0 {
        return fill_integers(seed, 2, bytes);
    }
    put_u32(bytes, 2, u32::MAX);
    put_u32(bytes, 5, u32::MAX);
    put_u32(bytes, 9, 1);
}

fn block_reduce(buffers: &mut [&mut [u8]]) {
    let [values, totals] = buffers else { return };
    let (mut sum, mut largest, mut parity, mut float_sum, mut smallest) = (0u64, 0, 0, 0u32, 0i32);
    for i in 0..REDUCED as usize {
        let value = u32_at(values, i);
        sum += u64::from(value);
        largest = value.max(largest);
        parity ^= value;
        float_sum += value & 15;
        smallest = smallest.min(value.cast_signed());
    }
    put_u64(totals, 0, sum);
    put_u32(totals, 2, largest);
    put_u32(totals, 3, parity);
    // Below 2^24: exact in single precision in whatever order.
    put_f32(totals, 4, float_sum as f32);
    put_u32(totals, 5, smallest.cast_unsigned());
}

fn histogram(buffers: &mut [&mut [u8]]) {
    let [input, bins] = buffers else { return };
    for &byte in input.iter() {
        let bin = usize::from(byte);
        put_u32(bins, bin, u32_at(bins, bin) + 1);
    }
}

fn atomics(buffers: &mut [&mut [u8]]) {
    let [values, words, wide] = buffers else {
        return;
    };
    for i in 0..ATOMIC_THREADS as usize {
        let value = u32_at(values, i);
        let mut update = |index: usize, next: fn(u32, u32) -> u32| {
            let old = u32_at(words, index);
            put_u32(words, index, next(old, value));
        };
        update(0, u32::wrapping_add);
        update(1, u32::wrapping_sub);
        update(2, |old, value| old & (value | 0xff));
        update(3, |old, value| old | (value & 0x0f0f_0f0f));
        update(4, |old, value| old ^ value);
        update(5, u32::min);
        update(6, u32::max);
        update(7, |old, _| if old >= 999 { 0 } else { old + 1 });
        update(
            8,
            |old, _| if old == 0 || old > 999 { 999 } else { old - 1 },
        );
        if i & 15 == 0 {
            update(9, |old, value| old.wrapping_mul(value | 1));
        }
        let wide_value = u64::from(value);
        let next = u64_at(wide, 0).wrapping_add(wide_value << 16);
        put_u64(wide, 0, next);
        let next = u64_at(wide, 1).max(wide_value << 8);
        put_u64(wide, 1, next);
        let next = u64_at(wide, 2) ^ (wide_value * wide_value);
        put_u64(wide, 2, next);
    }
    // Each of the 64 words is exchanged for a seven by many, and found zero by one.
    put_u32(words, 10, 64);
    for index in 16..80 {
        put_u32(words, index, 7);
    }
}
