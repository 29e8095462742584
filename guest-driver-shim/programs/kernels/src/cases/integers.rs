//! Integer instructions: the hash, and division, remainder and conversion of every width.

use crate::case::{Argument, Buffer, Case, Role};
use crate::geometry::Geometry;
use crate::random::Seed;
use crate::words::{each_f32, each_u32, f32_at, put_u32, put_u64, u32_at, u64_at};

const KEYS: u32 = (1 << 15) - 3;
const CONVERTED: u32 = 1 << 15;

pub const HASH: Case = Case {
    name: "hash",
    ptx: include_str!("../../ptx/hash.ptx"),
    grid: [KEYS.div_ceil(256), 1, 1],
    block: [256, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Cover,
    buffers: &[
        Buffer::long_words(Role::Input, KEYS),
        Buffer::long_words(Role::Output, KEYS),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::U32(KEYS),
    ],
    fill: fill_integers,
    reference: hash,
};

pub const CONVERT: Case = Case {
    name: "convert",
    ptx: include_str!("../../ptx/convert.ptx"),
    grid: [CONVERTED / 128, 1, 1],
    block: [128, 1, 1],
    dynamic_shared: 0,
    geometry: Geometry::Split,
    buffers: &[
        Buffer::words(Role::Input, CONVERTED),
        Buffer::words(Role::Input, CONVERTED),
        Buffer::words(Role::Input, CONVERTED),
        Buffer::words(Role::Output, CONVERTED),
        Buffer::long_words(Role::Output, CONVERTED),
        Buffer::words(Role::Output, CONVERTED),
    ],
    arguments: &[
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Buffer(2),
        Argument::Buffer(3),
        Argument::Buffer(4),
        Argument::Buffer(5),
    ],
    fill: fill_convert,
    reference: convert,
};

fn fill_integers(seed: Seed, index: usize, bytes: &mut [u8]) {
    let mut random = seed.generator(700 + index as u64);
    each_u32(bytes, |_| random.u32());
}

/// Floats of every magnitude up to beyond the integers, halves and infinities among them.
fn fill_convert(seed: Seed, index: usize, bytes: &mut [u8]) {
    if index < 2 {
        return fill_integers(seed, 2 + index, bytes);
    }
    let mut random = seed.generator(710);
    each_f32(bytes, |i| match i % 16 {
        0 => f32::INFINITY,
        1 => f32::NEG_INFINITY,
        2 => f32::from(random.u32() as i16) + 0.5,
        k => random.f32() * (1u64 << (3 * k - 9)) as f32,
    });
}

fn hash(buffers: &mut [&mut [u8]]) {
    let [keys, digests] = buffers else { return };
    for i in 0..KEYS as usize {
        put_u64(digests, i, digest(u64_at(keys, i)));
    }
}

fn digest(mut key: u64) -> u64 {
    for round in 0..8 {
        let product = u128::from(key) * 0x9e37_79b9_7f4a_7c15;
        key = product as u64 ^ (product >> 64) as u64;
        let (mut a, mut b) = (key as u32, (key >> 32) as u32);
        a = ((join(b, a) << ((round * 5 + 3) & 31)) >> 32) as u32;
        b = (join(b, a) >> (a & 31)) as u32;
        a ^= permute(a, b, 0x2705 + (round << 4));
        let unsigned_high = (u64::from(a) * 0x85eb_ca6b) >> 32;
        let signed_high = (i64::from(a.cast_signed()) * i64::from(b.cast_signed())) >> 32;
        b = b
            .wrapping_add(unsigned_high as u32)
            .wrapping_add(signed_high as u32);
        let first_set = if a == 0 { 0 } else { a.trailing_zeros() + 1 };
        a ^= b
            .reverse_bits()
            .wrapping_add(a.count_ones() * 0x1001)
            .wrapping_add(b.leading_zeros())
            .wrapping_add(first_set);
        key = key.wrapping_add(join(a, b) ^ (key >> 7).reverse_bits());
    }
    key
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The bytes of `b:a` that the low four digits of the selector name.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = join(b, a);
    (0..4).fold(0, |word, k| {
        let from = (selector >> (4 * k)) & 7;
        word | ((bytes >> (8 * from)) as u32 & 0xff) << (8 * k)
    })
}

fn convert(buffers: &mut [&mut [u8]]) {
    let [a, b, floats, integers, wide, rounded] = buffers else {
        return;
    };
    for i in 0..CONVERTED as usize {
        let (x, y) = (u32_at(a, i), u32_at(b, i) | 1);
        let (sx, sy) = (x.cast_signed(), (y >> 4).cast_signed() | 1);
        let signed = sx.wrapping_div(sy) ^ sx.wrapping_rem(sy) ^ (sx >> (y & 31));
        put_u32(
            integers,
            i,
            (x / y) ^ (x % (y >> 7 | 1)) ^ signed.cast_unsigned(),
        );
        let large = join(x, y);
        let quotient = (large / u64::from(y | 0x1_0000)) ^ (large % u64::from(x | 1));
        let signed =
            (large.cast_signed() / i64::from(sy)) ^ i64::from(x as i16) ^ i64::from(y as i8);
        put_u64(wide, i, quotient ^ signed.cast_unsigned());
        put_u32(rounded, i, round(f32_at(floats, i), x));
    }
}

/// The conversions of one float and one integer. Rust's `as` clamps as PTX does.
fn round(v: f32, x: u32) -> u32 {
    let exact = f64::from(v);
    let whole = |y: f64| (y as i32).cast_unsigned();
    let mut mixed = whole(nearest(exact)).wrapping_add(whole(exact).wrapping_mul(3));
    mixed ^= whole(floor(exact))
        .wrapping_mul(5)
        .wrapping_add(whole(-floor(-exact)).wrapping_mul(7));
    mixed ^= v as u32;
    // Toward zero: drop the bits below the 24 that a float holds.
    let dropped = 8u32.saturating_sub(x.leading_zeros());
    let toward_zero = (x >> dropped << dropped) as f32;
    let clamped = (v * 1.0e-9).clamp(0.0, 1.0);
    mixed
        ^ (floor(exact) as f32).to_bits()
        ^ toward_zero.to_bits()
        ^ (x.cast_signed() as f32).to_bits()
        ^ (v / 3.0).to_bits()
        ^ clamped.to_bits()
}

/// The largest whole number that is not above.
fn floor(x: f64) -> f64 {
    let whole = x as i64 as f64;
    if x.abs() >= 9.0e15 {
        x
    } else if whole > x {
        whole - 1.0
    } else if x == 0.0 {
        x
    } else {
        whole
    }
}

/// The nearest whole number, the even one of two.
fn nearest(x: f64) -> f64 {
    let below = floor(x);
    match (x - below, below % 2.0 == 0.0) {
        (rest, _) if rest < 0.5 => below,
        (0.5, true) => below,
        (rest, _) if rest.is_nan() => x,
        _ => below + 1.0,
    }
}
