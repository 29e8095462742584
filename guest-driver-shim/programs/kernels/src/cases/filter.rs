//! Constant memory and the module's own global variables: a filter with a table of weights.

use crate::arithmetic::fma32;
use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::words::{each_f32, f32_at, put_f32, put_u32};

const WIDTH: u32 = 256;
const HEIGHT: u32 = 192;

/// As in `kernels/constant.cu`.
const WEIGHTS: [[f32; 9]; 4] = [
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    [
        0.0625, 0.125, 0.0625, 0.125, 0.25, 0.125, 0.0625, 0.125, 0.0625,
    ],
    [-1.0, 0.0, 1.0, -2.0, 0.0, 2.0, -1.0, 0.0, 1.0],
    [0.0, -1.0, 0.0, -1.0, 5.0, -1.0, 0.0, -1.0, 0.0],
];
const SALT: [u32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

pub const CONSTANT: Case = Case {
    name: "constant",
    ptx: include_str!("../../ptx/constant.ptx"),
    grid: [WIDTH / 32, HEIGHT / 8, 1],
    block: [32, 8, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, WIDTH * HEIGHT),
        Buffer::words(Role::Output, WIDTH * HEIGHT),
        Buffer::words(Role::Output, WIDTH * HEIGHT),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(WIDTH),
        Argument::U32(HEIGHT),
    ],
    fill: |seed, index, bytes| {
        let mut random = seed.generator(1000 + index as u64);
        each_f32(bytes, |_| random.moderate());
    },
    reference: filter,
};

fn filter(buffers: &mut [&mut [u8]]) {
    let [from, to, salted] = buffers else { return };
    let (width, height) = (WIDTH as usize, HEIGHT as usize);
    for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
        let mut sum = 0.0;
        for (k, &weight) in WEIGHTS[(x ^ y) & 3].iter().enumerate() {
            let column = (x + k % 3).saturating_sub(1).min(width - 1);
            let row = (y + k / 3).saturating_sub(1).min(height - 1);
            sum = fma32(weight, f32_at(from, row * width + column), sum);
        }
        put_f32(to, y * width + x, sum);
        put_u32(salted, y * width + x, SALT[x & 7] * 1000 + SALT[y & 7]);
    }
}
