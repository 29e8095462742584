//! One thread an element: vector add, saxpy, the stencil, and the volume of vector types.

use crate::arithmetic::fma32;
use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::words::{each_f32, each_u32, f32_at, put_f32, put_u32, put_u64, u32_at};

/// Not a multiple of the block, so that the last one is partly idle.
const SUM_LENGTH: u32 = (1 << 18) - 37;
const SAXPY_LENGTH: u32 = (1 << 18) + 11;
const SAXPY_FACTOR: f32 = 1.234_567_9;
const WIDTH: u32 = 500;
const HEIGHT: u32 = 381;
const RATE: f32 = 0.2;
/// Elements along each side of the volume.
const SIDE: u32 = 32;
const VOXELS: u32 = SIDE * SIDE * SIDE;

pub const VECTOR_ADD: Case = Case {
    name: "vector_add",
    ptx: include_str!("../../ptx/vector_add.ptx"),
    grid: [SUM_LENGTH.div_ceil(256), 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Cover,
    buffers: &[
        Buffer::words(Role::Input, SUM_LENGTH),
        Buffer::words(Role::Input, SUM_LENGTH),
        Buffer::words(Role::Output, SUM_LENGTH),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(SUM_LENGTH),
    ],
    fill: fill_finite,
    reference: add,
};

pub const SAXPY: Case = Case {
    name: "saxpy",
    ptx: include_str!("../../ptx/saxpy.ptx"),
    grid: [64, 1, 1],
    block: [192, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Loop,
    buffers: &[
        Buffer::words(Role::Input, SAXPY_LENGTH),
        Buffer::words(Role::InOut, SAXPY_LENGTH),
    ],
    arguments: &[
        Argument::F32(SAXPY_FACTOR),
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::U32(SAXPY_LENGTH),
    ],
    fill: fill_finite,
    reference: saxpy,
};

pub const STENCIL: Case = Case {
    name: "stencil",
    ptx: include_str!("../../ptx/stencil.ptx"),
    grid: [WIDTH.div_ceil(32), HEIGHT.div_ceil(8), 1],
    block: [32, 8, 1],
    dynamic_shared: 0,
    geometry: Geometry::Cover,
    buffers: &[
        Buffer::words(Role::Input, WIDTH * HEIGHT),
        Buffer::words(Role::Output, WIDTH * HEIGHT),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::U32(WIDTH),
        Argument::U32(HEIGHT),
        Argument::F32(RATE),
    ],
    fill: fill_moderate,
    reference: stencil,
};

pub const VOLUME: Case = Case {
    name: "volume",
    ptx: include_str!("../../ptx/volume.ptx"),
    grid: [SIDE / 8, SIDE / 4, SIDE / 4],
    block: [8, 4, 4],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, 4 * VOXELS),
        Buffer::words(Role::Output, 4 * VOXELS),
        Buffer::words(Role::Output, 4 * VOXELS),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
    ],
    fill: fill_integers,
    reference: volume,
};

/// One operation on each: overflow is infinity, and nothing is not a number.
fn fill_finite(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(100 + index as u64);
    each_f32(bytes, |_| random.finite());
}

fn fill_moderate(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(100 + index as u64);
    each_f32(bytes, |_| random.moderate());
}

fn fill_integers(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(200 + index as u64);
    each_u32(bytes, |_| random.u32());
}

fn add(buffers: &mut [&mut [u8]]) {
    let [a, b, c] = buffers else { return };
    each_f32(c, |i| f32_at(a, i) + f32_at(b, i));
}

fn saxpy(buffers: &mut [&mut [u8]]) {
    let [x, y] = buffers else { return };
    for i in 0..SAXPY_LENGTH as usize {
        let sum = fma32(SAXPY_FACTOR, f32_at(x, i), f32_at(y, i));
        put_f32(y, i, sum);
    }
}

fn stencil(buffers: &mut [&mut [u8]]) {
    let [from, to] = buffers else { return };
    let (width, height) = (WIDTH as usize, HEIGHT as usize);
    each_f32(to, |i| {
        let (x, y) = (i % width, i / width);
        let here = f32_at(from, i);
        if x == 0 || y == 0 || x == width - 1 || y == height - 1 {
            return here;
        }
        let around = f32_at(from, i - 1)
            + f32_at(from, i + 1)
            + f32_at(from, i - width)
            + f32_at(from, i + width);
        here + RATE * (around - 4.0 * here)
    });
}

fn volume(buffers: &mut [&mut [u8]]) {
    let [from, to, sums] = buffers else { return };
    for i in 0..VOXELS {
        let (x, y, z) = (i % SIDE, i / SIDE % SIDE, i / SIDE / SIDE);
        let turned = ((x * SIDE + z) * SIDE + y) as usize;
        let of = |k: usize| u32_at(from, 4 * i as usize + k);
        let [a, b, c, d] = [of(0), of(1), of(2), of(3)];
        let moved = [
            d.wrapping_add(x),
            a ^ y,
            b.wrapping_sub(z),
            c.wrapping_mul(3),
        ];
        for (k, value) in moved.into_iter().enumerate() {
            put_u32(to, 4 * turned + k, value);
        }
        put_u64(sums, 2 * turned, u64::from(a) + u64::from(b));
        put_u64(sums, 2 * turned + 1, u64::from(c) * u64::from(d));
    }
}
