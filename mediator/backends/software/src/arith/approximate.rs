//! Approximations within the error bounds that the PTX ISA states ("Floating-Point Instructions").
//!
//! | operation | bound | here |
//! |---|---|---|
//! | `ex2.approx.f32` | 2 ulp | 1.1 ulp |
//! | `lg2.approx.f32` | 2^-22 absolute in (0.5, 2), else 2^-22 relative | 2^-23 |
//! | `sin`, `cos.approx.f32` | 2^-20.5 absolute within 2π, 2^-14.7 within 100π | 2^-23.4 anywhere |
//! | `tanh.approx.f32` | 2^-11 relative | 2^-22.4 |
//! | `rcp`, `sqrt`, `div.approx`, `div.full` | 1 ulp, 2^-23 relative, 2 ulp | correctly rounded |
//! | `rsqrt.approx.f32` | 2^-22.9 relative | 2^-23.4 |
//!
//! The last column is what the tests measure and hold.
//!
//! Polynomials are evaluated with separate products and sums: a fused one is a library call on
//! processors without it, and results should not differ between processors. `.ftz` is the caller's:
//! [`super::float32::flush`] on operands and result.

use super::compare::{NAN_F32, NAN_F64};

/// 1.5 · 2^23: adding and subtracting it rounds to an integer, ties to even, where |x| < 2^22.
const ROUND: f32 = 12_582_912.0;

/// Evaluates a polynomial, highest coefficient first.
#[inline]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients
        .iter()
        .fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// 2^`exponent` for -126 to 127.
#[inline]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent + 127).cast_unsigned() << 23)
}

/// Computes 2 to the power of `x` as PTX's `ex2.approx.f32` does.
#[inline]
pub fn ex2(x: f32) -> f32 {
    // Beyond these everything is infinite or zero; NaN passes both comparisons unchanged.
    let x = if x > 130.0 { 130.0 } else { x };
    let x = if x < -160.0 { -160.0 } else { x };
    let whole = (x + ROUND) - ROUND;
    let fraction = x - whole;
    // Taylor's series of 2^x; the rest is below 2^-27 for |x| <= 1/2.
    let mantissa = polynomial(
        fraction,
        [
            1.525_273_4e-5,
            1.540_353e-4,
            1.333_355_8e-3,
            9.618_129e-3,
            5.550_411e-2,
            2.402_265e-1,
            6.931_472e-1,
            1.0,
        ],
    );
    // Two steps, as neither end of the exponents fits one; only the second can round.
    let whole = whole as i32;
    let first = whole / 2;
    mantissa * power_of_two(first) * power_of_two(whole - first)
}

/// Computes the logarithm of `x` to base 2 as PTX's `lg2.approx.f32` does. Subnormal operands are
/// not flushed to zero.
#[inline]
pub fn lg2(x: f32) -> f32 {
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits();
    // Splits at 1/√2, so that the mantissa lies around 1 and its logarithm around 0.
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = shifted.cast_signed() >> 23;
    let mantissa = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    let exponent = exponent - if small { 23 } else { 0 };
    // ln m = 2 artanh((m - 1) / (m + 1)); the rest after s^9 is below 2^-28.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = polynomial(
        s * s,
        [0.320_598_9, 0.412_198_6, 0.577_078, 0.961_796_7, 2.885_39],
    );
    let result = exponent as f32 + s * series;
    if x > 0.0 && x < f32::INFINITY {
        result
    } else {
        lg2_special(x)
    }
}

fn lg2_special(x: f32) -> f32 {
    if x == 0.0 {
        f32::NEG_INFINITY
    } else if x == f32::INFINITY {
        x
    } else {
        NAN_F32
    }
}

/// Angles beyond this are reduced by the library: PTX promises nothing for them.
const ANGLE_MAX: f32 = 1.0e6;

/// Computes the sine of `x`, an angle in radians, as PTX's `sin.approx.f32` does.
#[inline]
pub fn sin(x: f32) -> f32 {
    if x.is_nan() || x.abs() > ANGLE_MAX {
        return canonical(f64::from(x).sin() as f32);
    }
    let value = sine_ahead(x, 0);
    // The reduction loses the sign of zero and the digits of the least numbers.
    if x.abs() < 1e-6 { x } else { value }
}

/// Computes the cosine of `x`, an angle in radians, as PTX's `cos.approx.f32` does.
#[inline]
pub fn cos(x: f32) -> f32 {
    if x.is_nan() || x.abs() > ANGLE_MAX {
        return canonical(f64::from(x).cos() as f32);
    }
    sine_ahead(x, 1)
}

/// Sine of `x` plus a number of quarter turns.
#[inline(always)]
fn sine_ahead(x: f32, ahead: i32) -> f32 {
    let (quadrant, rest) = quarter_turns(x);
    let quadrant = quadrant + ahead;
    let value = if quadrant & 1 == 0 {
        sine(rest)
    } else {
        cosine(rest)
    };
    if quadrant & 2 == 0 { value } else { -value }
}

fn canonical(value: f32) -> f32 {
    if value.is_nan() { NAN_F32 } else { value }
}

/// `x` as quarter turns and a rest of at most an eighth of a turn, reduced in f64.
#[inline]
fn quarter_turns(x: f32) -> (i32, f32) {
    let x = f64::from(x);
    // 1.5 · 2^52, as ROUND is for f32.
    let round = 6_755_399_441_055_744.0;
    let turns = (x * std::f64::consts::FRAC_2_PI + round) - round;
    let rest = x - turns * std::f64::consts::FRAC_PI_2;
    (turns as i32, rest as f32)
}

/// Sine of at most π/4 by Taylor's series; the rest is below 2^-28.
#[inline]
fn sine(x: f32) -> f32 {
    let square = x * x;
    let series = polynomial(
        square,
        [2.755_731_9e-6, -1.984_127e-4, 8.333_333e-3, -1.666_666_7e-1],
    );
    x + x * square * series
}

/// Cosine of at most π/4 by Taylor's series; the rest is below 2^-25.
#[inline]
fn cosine(x: f32) -> f32 {
    let square = x * x;
    let series = polynomial(
        square,
        [
            -2.755_732e-7,
            2.480_158_7e-5,
            -1.388_888_9e-3,
            4.166_666_7e-2,
            -0.5,
        ],
    );
    1.0 + square * series
}

/// Computes the hyperbolic tangent of `x` as PTX's `tanh.approx.f32` does. Returns a subnormal `x`
/// unchanged.
#[inline]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    // 1 - 2 / (e^2|x| + 1), with e^2|x| as a power of two; it cancels for small operands.
    let large = 1.0 - 2.0 / (ex2(magnitude * 2.885_39) + 1.0);
    let square = magnitude * magnitude;
    let series = polynomial(
        square,
        [
            3.592_128e-3,
            -8.863_236e-3,
            2.186_949e-2,
            -5.396_825_4e-2,
            1.333_333_3e-1,
            -3.333_333_3e-1,
        ],
    );
    let small = magnitude + magnitude * square * series;
    let value = if magnitude < 0.5 { small } else { large };
    canonical(value).copysign(if x.is_nan() { 1.0 } else { x })
}

/// Computes `1 / x` as PTX's `rcp.approx.f32` does.
#[inline]
pub fn rcp(x: f32) -> f32 {
    1.0 / x
}

/// Computes the square root of `x` as PTX's `sqrt.approx.f32` does.
#[inline]
pub fn sqrt(x: f32) -> f32 {
    x.sqrt()
}

/// Computes 1 over the square root of `x` as PTX's `rsqrt.approx.f32` does.
#[inline]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Computes `a / b` as PTX's `div.approx.f32` does: `1 / b` counts as zero if the magnitude of `b`
/// is greater than 2^126.
#[inline]
pub fn div(a: f32, b: f32) -> f32 {
    let magnitude = b.abs();
    if magnitude > 8.507_059e37 && magnitude < f32::INFINITY {
        return a * 0.0_f32.copysign(b);
    }
    a / b
}

/// Computes `a / b` as PTX's `div.full.f32` does.
#[inline]
pub fn div_full(a: f32, b: f32) -> f32 {
    a / b
}

/// Computes 1 over the square root of `x` as PTX's `rsqrt.approx.f64` does.
#[inline]
pub fn rsqrt_f64(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// Computes `1 / x` as PTX's `rcp.approx.ftz.f64` does: the lower 32 bits of `x` and of the result
/// are cleared, and subnormal numbers become zero.
#[inline]
pub fn rcp_ftz_f64(x: f64) -> f64 {
    upper_half(1.0 / upper_half(x))
}

/// Computes 1 over the square root of `x` as PTX's `rsqrt.approx.ftz.f64` does: the lower 32 bits
/// of `x` and of the result are cleared, and subnormal numbers become zero.
#[inline]
pub fn rsqrt_ftz_f64(x: f64) -> f64 {
    upper_half(1.0 / upper_half(x).sqrt())
}

/// `x` without its lower 32 bits, subnormal numbers flushed, NaN canonical.
#[inline]
fn upper_half(x: f64) -> f64 {
    if x.is_nan() {
        return f64::from_bits(NAN_F64.to_bits() & !0xffff_ffff);
    }
    let mask = if x.abs() < f64::MIN_POSITIVE {
        1 << 63
    } else {
        !0xffff_ffff
    };
    f64::from_bits(x.to_bits() & mask)
}

#[cfg(test)]
#[path = "approximate_tests.rs"]
mod tests;
