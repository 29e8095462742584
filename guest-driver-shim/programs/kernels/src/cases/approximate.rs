//! Kernels that use approximate instructions, which PTX bounds rather than defines.

use core::f32::consts::PI;

use crate::arithmetic::{fma32, sqrt32};
use crate::case::{Argument, Buffer, Case, Role};
use crate::functions;
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::rule::Rule;
use crate::words::{each_f32, f32_at, put_f32};

const BODIES: u32 = 1024;
const SOFTENING: f32 = 0.01;
const SAMPLES: u32 = (1 << 15) - 9;

/// `rsqrt.approx.f32` is within 2^-22.9 of the value, so a term within about 2^-21 (three factors
/// and three roundings); the roundings of a sum of 1024 terms, each below 39 / 1024, add less than
/// 2^-14 where terms cancel.
const FORCE: Rule = Rule::Near {
    relative: 1.0 / 524_288.0,
    absolute: 1.0 / 16_384.0,
};

/// `sin.approx` and `cos.approx` are within 2^-20.5 in -π..π; `ex2.approx` of a rounded product
/// within 6 units in the last place here; `lg2.approx` within 2^-21.4. The library's own series are
/// within 2 units.
const FUNCTION: Rule = Rule::Near {
    relative: 1.0 / 1_048_576.0,
    absolute: 1.0 / 1_048_576.0,
};

pub const NBODY: Case = Case {
    name: "nbody",
    ptx: include_str!("../../ptx/nbody.ptx"),
    grid: [BODIES / 128, 1, 1],
    block: [128, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Fixed,
    buffers: &[
        Buffer::words(Role::Input, 4 * BODIES),
        Buffer {
            bytes: 16 * BODIES as usize,
            role: Role::Output,
            rule: FORCE,
        },
        // By exact division and square root, summed in order: equal.
        Buffer::words(Role::Output, BODIES),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(BODIES),
    ],
    fill: fill_bodies,
    reference: nbody,
};

pub const ELEMENTARY: Case = Case {
    name: "elementary",
    ptx: include_str!("../../ptx/elementary.ptx"),
    grid: [SAMPLES.div_ceil(256), 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Cover,
    buffers: &[
        Buffer::words(Role::Input, SAMPLES),
        Buffer {
            bytes: 16 * SAMPLES as usize,
            role: Role::Output,
            rule: FUNCTION,
        },
        Buffer {
            bytes: 16 * SAMPLES as usize,
            role: Role::Output,
            rule: FUNCTION,
        },
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(SAMPLES),
    ],
    fill: fill_angles,
    reference: elementary,
};

/// Positions in a cube, masses of at most 1 / 1024.
fn fill_bodies(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(600 + index as u64);
    each_f32(bytes, |i| match i % 4 {
        3 => (1.0 + random.f32()) / (2 * BODIES) as f32,
        _ => random.f32(),
    });
}

/// Angles in -π..π, the ends and zero among them.
fn fill_angles(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(610 + index as u64);
    each_f32(bytes, |i| match i {
        0 => 0.0,
        1 => PI,
        2 => -PI,
        3 => 1.0e-30,
        _ => random.f32() * PI,
    });
}

fn nbody(buffers: &mut [&mut [u8]]) {
    let [bodies, accelerations, potentials] = buffers else {
        return;
    };
    let body = |i: usize| -> [f32; 4] { core::array::from_fn(|k| f32_at(bodies, 4 * i + k)) };
    for i in 0..BODIES as usize {
        let me = body(i);
        let mut acceleration = [0.0f64; 3];
        let mut potential = 0.0f32;
        for j in 0..BODIES as usize {
            let other = body(j);
            let [dx, dy, dz] = core::array::from_fn(|k| other[k] - me[k]);
            let square = fma32(dx, dx, fma32(dy, dy, fma32(dz, dz, SOFTENING)));
            let distance = crate::arithmetic::sqrt64(f64::from(square));
            let pull = f64::from(other[3]) / (distance * distance * distance);
            for (sum, d) in acceleration.iter_mut().zip([dx, dy, dz]) {
                *sum += f64::from(d) * pull;
            }
            potential -= other[3] / sqrt32(square);
        }
        for (k, sum) in acceleration.into_iter().enumerate() {
            put_f32(accelerations, 4 * i + k, sum as f32);
        }
        put_f32(potentials, i, potential);
    }
}

fn elementary(buffers: &mut [&mut [u8]]) {
    let [x, fast, library] = buffers else { return };
    for i in 0..SAMPLES as usize {
        let value = f32_at(x, i);
        let (x, above) = (f64::from(value), f64::from(value + 4.0));
        let (sin, exp, ln) = (functions::sin(x), functions::exp(x), functions::ln(above));
        for (k, y) in [sin, functions::cos(x), exp, ln].into_iter().enumerate() {
            put_f32(fast, 4 * i + k, y as f32);
        }
        for (k, y) in [sin, functions::tanh(x), exp, ln].into_iter().enumerate() {
            put_f32(library, 4 * i + k, y as f32);
        }
    }
}
