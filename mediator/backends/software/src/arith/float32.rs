//! `.f32` arithmetic with every rounding mode.
//!
//! The operation is done in f64, where sums, products, quotients and roots of f32 numbers neither
//! overflow nor underflow, and rounded there to odd: inexact results get an odd last place, so that
//! they fall on the right side of everything that matters to the second rounding, from 53 to 24
//! digits (Boldo and Melquiond, "When double rounding is odd", 2005).

use super::Rounding;

/// Replaces a subnormal number by a zero of the same sign, as PTX's `.ftz` does, and returns every
/// other value unchanged.
#[inline(always)]
pub fn flush(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE {
        f32::from_bits(value.to_bits() & 0x8000_0000)
    } else {
        value
    }
}

/// Limits `value` to the range from 0 to 1, as PTX's `.sat` does; NaN becomes +0.
#[inline]
pub fn saturate(value: f32) -> f32 {
    // A comparison with NaN is false, and negative zero compares equal: both end at the +0 of the
    // else.
    let positive = if value > 0.0 { value } else { 0.0 };
    if positive < 1.0 { positive } else { 1.0 }
}

/// Computes `a + b` and rounds it as `rounding` says (PTX's `add.f32`).
#[inline]
pub fn add(a: f32, b: f32, rounding: Rounding) -> f32 {
    if rounding == Rounding::Nearest {
        return a + b;
    }
    narrow(sum(f64::from(a), f64::from(b), rounding), rounding)
}

/// Computes `a - b` and rounds it as `rounding` says (PTX's `sub.f32`).
#[inline]
pub fn sub(a: f32, b: f32, rounding: Rounding) -> f32 {
    add(a, -b, rounding)
}

/// Computes `a * b` and rounds it as `rounding` says (PTX's `mul.f32`).
#[inline]
pub fn mul(a: f32, b: f32, rounding: Rounding) -> f32 {
    if rounding == Rounding::Nearest {
        return a * b;
    }
    // 48 digits: the product is exact.
    narrow(f64::from(a) * f64::from(b), rounding)
}

/// Computes `a * b + c` exactly and rounds it once, as `rounding` says (PTX's `fma.f32`).
#[inline]
pub fn fma(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    let product = f64::from(a) * f64::from(b);
    narrow(sum(product, f64::from(c), rounding), rounding)
}

/// Computes `a / b` and rounds it as `rounding` says (PTX's `div.f32`).
#[inline]
pub fn div(a: f32, b: f32, rounding: Rounding) -> f32 {
    if rounding == Rounding::Nearest {
        return a / b;
    }
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    let remainder = (-quotient).mul_add(b, a);
    // `a / b - quotient` has the sign of the remainder over `b`.
    narrow(
        odd(quotient, if b < 0.0 { -remainder } else { remainder }),
        rounding,
    )
}

/// Computes `1 / a` and rounds it as `rounding` says (PTX's `rcp.f32`).
#[inline]
pub fn rcp(a: f32, rounding: Rounding) -> f32 {
    div(1.0, a, rounding)
}

/// Computes the square root of `a` and rounds it as `rounding` says (PTX's `sqrt.f32`).
#[inline]
pub fn sqrt(a: f32, rounding: Rounding) -> f32 {
    if rounding == Rounding::Nearest {
        return a.sqrt();
    }
    let a = f64::from(a);
    let root = a.sqrt();
    narrow(odd(root, (-root).mul_add(root, a)), rounding)
}

/// Adds `a` and `b`, each of which is an f32 number or the product of two, and rounds the sum to
/// odd. An exact zero takes the sign that `rounding` gives it.
#[inline]
pub(super) fn sum(a: f64, b: f64, rounding: Rounding) -> f64 {
    let sum = a + b;
    // Knuth's two-sum: the exact error, whichever of the operands is larger.
    let from_b = sum - a;
    let error = (a - (sum - from_b)) + (b - from_b);
    if sum == 0.0 && rounding == Rounding::Down && a.is_sign_negative() != b.is_sign_negative() {
        return -0.0;
    }
    odd(sum, error)
}

/// `value`, which is the exact result less `error` rounded to nearest, rounded to odd instead.
#[inline]
fn odd(value: f64, error: f64) -> f64 {
    let bits = value.to_bits();
    // Infinities and NaN come with a NaN for an error, for which the comparison is false.
    let inexact = error.abs() > 0.0;
    if !inexact || bits & 1 == 1 {
        return value;
    }
    let outwards = (error > 0.0) == (value > 0.0);
    f64::from_bits(if outwards { bits + 1 } else { bits - 1 })
}

/// Rounds `value` to an f32, as `rounding` says. `value` may itself be the result of rounding to
/// odd (inexact results get a last bit of 1). Then the result is the same as if the exact number
/// had been rounded to an f32 directly.
#[inline]
pub fn narrow(value: f64, rounding: Rounding) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    match rounding {
        Rounding::Nearest => nearest,
        Rounding::Zero if back.abs() > value.abs() => f32::from_bits(nearest.to_bits() - 1),
        Rounding::Down if back > value => nearest.next_down(),
        Rounding::Up if back < value => nearest.next_up(),
        // A number below zero that vanished came from below zero.
        _ => nearest,
    }
}

/// Rounds `value` to odd as an f32. A further rounding to 22 digits or fewer gives the same as if
/// it had begun with `value`.
#[inline]
pub(super) fn narrow_odd(value: f64) -> f32 {
    let towards_zero = narrow(value, Rounding::Zero);
    let inexact = f64::from(towards_zero) != value && !value.is_nan();
    f32::from_bits(towards_zero.to_bits() | u32::from(inexact))
}

#[cfg(test)]
mod tests {
    use super::super::sampling::{self, referee};
    use super::*;

    fn same(found: f32, wanted: f32) -> bool {
        found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan())
    }

    #[test]
    fn every_mode_agrees_with_the_processor() {
        let values = sampling::singles(400_000);
        for triple in values.windows(3) {
            let (a, b, c) = (triple[0], triple[1], triple[2]);
            for rounding in Rounding::ALL {
                let pairs = [
                    (add(a, b, rounding), referee::add_f32(a, b, rounding), "add"),
                    (sub(a, b, rounding), referee::sub_f32(a, b, rounding), "sub"),
                    (mul(a, b, rounding), referee::mul_f32(a, b, rounding), "mul"),
                    (div(a, b, rounding), referee::div_f32(a, b, rounding), "div"),
                    (sqrt(a, rounding), referee::sqrt_f32(a, rounding), "sqrt"),
                ];
                for (found, wanted, name) in pairs {
                    assert!(
                        same(found, wanted),
                        "{name} {rounding:?} {a:e} {b:e}: {found:e}, not {wanted:e}"
                    );
                }
                if let Some(wanted) = referee::fma_f32(a, b, c, rounding) {
                    let found = fma(a, b, c, rounding);
                    assert!(
                        same(found, wanted),
                        "fma {rounding:?} {a:e} {b:e} {c:e}: {found:e}, not {wanted:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn fma_rounds_once() {
        // In f64 the sum is a tie that only its lost last digits decide.
        let (a, b, c) = (
            1.0 + f32::EPSILON,
            1.0 + f32::EPSILON,
            f32::from_bits(0x0000_0001),
        );
        assert_eq!(fma(a, b, c, Rounding::Nearest), a.mul_add(b, c));
        assert_eq!(fma(a, b, c, Rounding::Up), 1.0 + 3.0 * f32::EPSILON);
    }

    #[test]
    fn flush_keeps_the_sign_and_saturate_clears_nan() {
        assert_eq!(flush(-1e-40).to_bits(), 0x8000_0000);
        assert_eq!(flush(f32::MIN_POSITIVE), f32::MIN_POSITIVE);
        assert!(flush(f32::NAN).is_nan());
        assert_eq!(saturate(f32::NAN).to_bits(), 0);
        assert_eq!(saturate(-0.0).to_bits(), 0);
        assert_eq!(saturate(f32::INFINITY), 1.0);
        assert_eq!(saturate(0.25), 0.25);
    }
}
