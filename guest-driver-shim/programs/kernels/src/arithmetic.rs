//! IEEE 754 operations that `core` lacks, correctly rounded (to nearest, ties to even).

use core::arch::x86_64::{
    _mm_cvtsd_f64, _mm_cvtss_f32, _mm_set_sd, _mm_set_ss, _mm_sqrt_sd, _mm_sqrt_ss,
};

/// Returns the square root of `x`.
#[allow(unsafe_code, reason = "core has no square root")]
pub fn sqrt32(x: f32) -> f32 {
    // SAFETY: arithmetic on registers; every x86-64 processor has SSE.
    unsafe { _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))) }
}

/// Returns the square root of `x`.
#[allow(unsafe_code, reason = "core has no square root")]
pub fn sqrt64(x: f64) -> f64 {
    // SAFETY: arithmetic on registers; every x86-64 processor has SSE2.
    unsafe {
        let x = _mm_set_sd(x);
        _mm_cvtsd_f64(_mm_sqrt_sd(x, x))
    }
}

/// Returns `a + b` and the exact error of that sum (Knuth's TwoSum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// Returns `a * b` and the error of that product (Dekker's product with Veltkamp's split). The
/// error is exact unless the halves overflow or the error underflows.
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let split = |x: f64| {
        let scaled = 134_217_729.0 * x;
        let high = scaled - (scaled - x);
        (high, x - high)
    };
    let product = a * b;
    let ((a_high, a_low), (b_high, b_low)) = (split(a), split(b));
    let error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    (product, error)
}

/// Returns `a + b` rounded to odd. If this is later rounded to a shorter format, the result is the
/// same as with a single rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded
/// sums", 2008).
fn sum_to_odd(a: f64, b: f64) -> f64 {
    let (sum, error) = two_sum(a, b);
    let bits = sum.to_bits();
    if error == 0.0 || error.is_nan() || bits & 1 == 1 {
        return sum;
    }
    let away_from_zero = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away_from_zero { bits + 1 } else { bits - 1 })
}

/// Returns `a * b + c`, rounded once.
pub fn fma32(a: f32, b: f32, c: f32) -> f32 {
    sum_to_odd(f64::from(a) * f64::from(b), f64::from(c)) as f32
}

/// Returns `a * b + c`, rounded once, for magnitudes far from overflow and underflow (Boldo and
/// Melquiond).
pub fn fma64(a: f64, b: f64, c: f64) -> f64 {
    let (product, product_error) = two_product(a, b);
    let (low, low_error) = two_sum(c, product_error);
    let (high, high_error) = two_sum(product, low);
    high + sum_to_odd(low_error, high_error)
}

/// Converts half precision, given by its bits, to double precision. The result is exact.
pub fn f16_to_f64(bits: u16) -> f64 {
    let magnitude = u64::from(bits & 0x7fff);
    let sign = u64::from(bits >> 15) << 63;
    let value = match magnitude >> 10 {
        0 => magnitude as f64 / 16_777_216.0,
        31 => f64::from_bits(0x7ff0_0000_0000_0000 | (magnitude & 0x3ff) << 42),
        _ => f64::from_bits((magnitude << 42) + ((1023 - 15) << 52)),
    };
    f64::from_bits(value.to_bits() | sign)
}

/// Converts double precision to half precision, and returns the bits of the result.
pub fn f64_to_f16(value: f64) -> u16 {
    let sign = ((value.to_bits() >> 48) & 0x8000) as u16;
    if value.is_nan() {
        return 0x7fff;
    }
    let magnitude = value.to_bits() & !(1 << 63);
    let exponent = (magnitude >> 52) as i32 - 1023;
    if exponent > 15 {
        return sign | 0x7c00;
    }
    if exponent < -26 {
        return sign;
    }
    // The unit in the last place of the result is 2^(place - 10).
    let place = exponent.max(-14);
    let significand = (magnitude & ((1 << 52) - 1)) | 1 << 52;
    let shift = (52 - 10 + place - exponent) as u32;
    let half = 1u64 << (shift - 1);
    let rest = significand & ((1 << shift) - 1);
    let mut units = significand >> shift;
    units += u64::from(rest > half || (rest == half && units & 1 == 1));
    // A carry out of the significand lands in the exponent, where it belongs.
    sign | (((place + 14) as u64) << 10).wrapping_add(units) as u16
}

/// Returns `a + b` in half precision; all numbers are given by their bits.
pub fn f16_add(a: u16, b: u16) -> u16 {
    f64_to_f16(f16_to_f64(a) + f16_to_f64(b))
}

/// Returns `a * b` in half precision; all numbers are given by their bits.
pub fn f16_mul(a: u16, b: u16) -> u16 {
    f64_to_f16(f16_to_f64(a) * f16_to_f64(b))
}

/// Returns `a * b + c` in half precision, rounded once; all numbers are given by their bits.
pub fn f16_fma(a: u16, b: u16, c: u16) -> u16 {
    f64_to_f16(sum_to_odd(f16_to_f64(a) * f16_to_f64(b), f16_to_f64(c)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    #[test]
    fn fused_multiply_add_is_rounded_once() {
        let mut random = Generator::new(1);
        for _ in 0..200_000 {
            let (a, b) = (random.f32(), random.f32());
            // Near the negated product, where a second rounding would show.
            let c = if random.u32() & 1 == 0 {
                -(a * b)
            } else {
                random.f32() * 1.0e-7
            };
            assert_eq!(
                fma32(a, b, c).to_bits(),
                a.mul_add(b, c).to_bits(),
                "{a} * {b} + {c}"
            );
            let (a, b) = (random.f64(), random.f64());
            let c = if random.u32() & 1 == 0 {
                -(a * b)
            } else {
                random.f64() * 1.0e-16
            };
            assert_eq!(
                fma64(a, b, c).to_bits(),
                a.mul_add(b, c).to_bits(),
                "{a} * {b} + {c}"
            );
        }
    }

    #[test]
    fn a_tie_that_a_distant_addend_breaks_is_seen() {
        // 1 + 2^-24 lies between two floats; the addend is too small for 53 bits.
        let (a, b) = (1.0 + f32::EPSILON, 1.0 + f32::EPSILON);
        for c in [1.0e-30f32, -1.0e-30] {
            assert_eq!(fma32(a, b, c), a.mul_add(b, c));
        }
        assert_eq!(
            fma32(4097.0, 4097.0, 1.0e-20),
            4097f32.mul_add(4097.0, 1.0e-20)
        );
    }

    #[test]
    fn every_half_survives_the_way_through_a_double() {
        for bits in 0..=u16::MAX {
            if bits & 0x7c00 != 0x7c00 || bits & 0x3ff == 0 {
                assert_eq!(f64_to_f16(f16_to_f64(bits)), bits);
            } else {
                assert_eq!(f64_to_f16(f16_to_f64(bits)), 0x7fff);
            }
        }
    }

    #[test]
    fn halves_round_to_even_and_overflow_to_infinity() {
        assert_eq!(f64_to_f16(2049.0), 0x6800);
        assert_eq!(f64_to_f16(2051.0), 0x6802);
        assert_eq!(f64_to_f16(65519.99), 0x7bff);
        assert_eq!(f64_to_f16(-65520.0), 0xfc00);
        assert_eq!(f64_to_f16(1.0 / 33_554_432.0), 0);
        assert_eq!(f64_to_f16(1.000_001 / 33_554_432.0), 1);
        assert_eq!(f64_to_f16(3.0 / 33_554_432.0), 2);
    }

    #[test]
    fn roots_are_those_of_the_standard_library() {
        let mut random = Generator::new(2);
        for _ in 0..10_000 {
            let (x, y) = (random.f32().abs(), random.f64().abs());
            assert_eq!(sqrt32(x), x.sqrt());
            assert_eq!(sqrt64(y), y.sqrt());
        }
    }
}
