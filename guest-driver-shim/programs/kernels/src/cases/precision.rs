//! Half and double precision.

use crate::arithmetic::{f16_add, f16_fma, f16_mul, f16_to_f64, f64_to_f16, fma64, sqrt64};
use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::rule::Rule;
use crate::words::{f64_at, put_f32, put_f64, put_u16, put_u64, u16_at};

const HALVES: u32 = 1 << 15;
const DOUBLES: u32 = (1 << 15) - 1;

/// A buffer of half-precision numbers, compared exactly.
const fn halves(role: Role, count: u32) -> Buffer {
    Buffer {
        bytes: 2 * count as usize,
        role,
        rule: Rule::Exact(2),
    }
}

pub const HALF: Case = Case {
    name: "half_math",
    ptx: include_str!("../../ptx/half.ptx"),
    grid: [HALVES / 256, 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        halves(Role::Input, HALVES),
        halves(Role::Input, HALVES),
        halves(Role::Output, HALVES),
        halves(Role::Output, 2 * HALVES),
        Buffer::words(Role::Output, HALVES),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::Buffer(3),
        Argument::Buffer(4),
    ],
    fill: fill_halves,
    reference: half,
};

pub const DOUBLE: Case = Case {
    name: "double_math",
    ptx: include_str!("../../ptx/double.ptx"),
    grid: [DOUBLES.div_ceil(128), 1, 1],
    block: [128, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Cover,
    buffers: &[
        Buffer::long_words(Role::Input, DOUBLES),
        Buffer::long_words(Role::Output, DOUBLES),
        Buffer::long_words(Role::Output, DOUBLES),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::U32(DOUBLES),
    ],
    fill: fill_doubles,
    reference: double,
};

/// Magnitudes from subnormal to 2.
fn fill_halves(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(800 + index as u64);
    for i in 0..HALVES as usize {
        let scale = 1.0 / f64::from(1u32 << (random.u32() % 18));
        put_u16(bytes, i, f64_to_f16(random.f64() * 2.0 * scale));
    }
}

fn fill_doubles(seed: Seed, _: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(810);
    for i in 0..DOUBLES as usize {
        put_f64(bytes, i, random.f64() * 8.0);
    }
}

fn half(buffers: &mut [&mut [u8]]) {
    let [x, y, scalar, paired, widened] = buffers else {
        return;
    };
    let negated = |bits: u16| bits ^ 0x8000;
    let quarter = f64_to_f16(0.25);
    for i in 0..HALVES as usize {
        let (a, b) = (u16_at(x, i), u16_at(y, i));
        let mut sum = a;
        for _ in 0..8 {
            sum = f16_fma(sum, b, a);
            sum = f16_add(f16_mul(sum, quarter), negated(b));
        }
        let less = f16_to_f64(sum) < f16_to_f64(b);
        put_u16(scalar, i, if less { f16_add(sum, b) } else { negated(sum) });
        put_f32(widened, i, f16_to_f64(sum) as f32 + f16_to_f64(b) as f32);
        for (k, (p, q)) in [(a, b), (b, sum)].into_iter().enumerate() {
            put_u16(paired, 2 * i + k, f16_fma(p, q, f16_add(p, q)));
        }
    }
}

fn double(buffers: &mut [&mut [u8]]) {
    let [x, y, whole] = buffers else { return };
    for i in 0..DOUBLES as usize {
        let value = f64_at(x, i);
        let mut sum = 1.0;
        for term in (1..=12).rev() {
            sum = fma64(sum, value / f64::from(term), 1.0);
        }
        let root = sqrt64(sum.abs() + 1.0);
        put_f64(y, i, root / (value * value + 3.0) - f64::from(value as f32));
        let bits = floor(sum * 1000.0) ^ -floor(-(value * 1000.0));
        put_u64(whole, i, bits.cast_unsigned());
    }
}

/// The largest whole number that is not above.
fn floor(x: f64) -> i64 {
    let whole = x as i64;
    whole - i64::from(whole as f64 > x)
}
