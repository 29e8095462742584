//! The tiled matrix products.

use crate::arithmetic::fma32;
use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::words::{each_f32, f32_at};

const PTX: &str = include_str!("../../ptx/matmul.ptx");

/// The extents of `c = a * b`: `a` is rows × inner, `b` is inner × columns.
struct Shape {
    rows: u32,
    inner: u32,
    columns: u32,
}

/// None of the three is a multiple of the tile.
const RAGGED: Shape = Shape {
    rows: 197,
    inner: 181,
    columns: 219,
};
const EVEN: Shape = Shape {
    rows: 256,
    inner: 256,
    columns: 256,
};

pub const MATMUL_16: Case = Case {
    name: "matmul_16",
    ptx: PTX,
    grid: [RAGGED.columns.div_ceil(16), RAGGED.rows.div_ceil(16), 1],
    block: [16, 16, 1],
    dynamic_shared: 0,
    geometry: Geometry::Fixed,
    buffers: &[
        Buffer::words(Role::Input, RAGGED.rows * RAGGED.inner),
        Buffer::words(Role::Input, RAGGED.inner * RAGGED.columns),
        Buffer::words(Role::Output, RAGGED.rows * RAGGED.columns),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(RAGGED.rows),
        Argument::U32(RAGGED.inner),
        Argument::U32(RAGGED.columns),
    ],
    fill,
    reference: |buffers| product(buffers, &RAGGED),
};

pub const MATMUL_32: Case = Case {
    name: "matmul_32",
    ptx: PTX,
    grid: [EVEN.columns / 32, EVEN.rows / 32, 1],
    block: [32, 32, 1],
    dynamic_shared: 0,
    geometry: Geometry::Fixed,
    buffers: &[
        Buffer::words(Role::Input, EVEN.rows * EVEN.inner),
        Buffer::words(Role::Input, EVEN.inner * EVEN.columns),
        Buffer::words(Role::Output, EVEN.rows * EVEN.columns),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(EVEN.rows),
        Argument::U32(EVEN.inner),
        Argument::U32(EVEN.columns),
    ],
    fill,
    reference: |buffers| product(buffers, &EVEN),
};

fn fill(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(300 + index as u64);
    each_f32(bytes, |_| random.moderate());
}

/// Sums in the order of the kernel: along the inner extent, one rounding a step. The zeros with
/// which the kernel pads the last tile change nothing.
fn product(buffers: &mut [&mut [u8]], shape: &Shape) {
    let [a, b, c] = buffers else { return };
    let (inner, columns) = (shape.inner as usize, shape.columns as usize);
    each_f32(c, |i| {
        let (row, column) = (i / columns, i % columns);
        (0..inner).fold(0.0, |sum, k| {
            fma32(
                f32_at(a, row * inner + k),
                f32_at(b, k * columns + column),
                sum,
            )
        })
    });
}
