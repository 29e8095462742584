//! `.f64` arithmetic with every rounding mode: exact in 128-bit integers, then rounded once.

use super::Rounding;
use super::format::{Exact, F64};

/// Computes `a + b` and rounds it as `rounding` says (PTX's `add.f64`).
#[inline]
pub fn add(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        return a + b;
    }
    fma(a, 1.0, b, rounding)
}

/// Computes `a - b` and rounds it as `rounding` says (PTX's `sub.f64`).
#[inline]
pub fn sub(a: f64, b: f64, rounding: Rounding) -> f64 {
    add(a, -b, rounding)
}

/// Computes `a * b` and rounds it as `rounding` says (PTX's `mul.f64`).
#[inline]
pub fn mul(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        return a * b;
    }
    match (Exact::from_f64(a), Exact::from_f64(b)) {
        (Some(left), Some(right)) => finish(product(left, right), rounding),
        // Zeros, infinities and NaN are exact.
        _ => a * b,
    }
}

/// Computes `a * b + c` exactly and rounds it once, as `rounding` says (PTX's `fma.f64`).
#[inline]
pub fn fma(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        return a.mul_add(b, c);
    }
    directed_fma(a, b, c, rounding)
}

/// Computes `a / b` and rounds it as `rounding` says (PTX's `div.f64`).
#[inline]
pub fn div(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest {
        return a / b;
    }
    match (Exact::from_f64(a), Exact::from_f64(b)) {
        (Some(left), Some(right)) => finish(quotient(left, right), rounding),
        _ => a / b,
    }
}

/// Computes `1 / a` and rounds it as `rounding` says (PTX's `rcp.f64`).
#[inline]
pub fn rcp(a: f64, rounding: Rounding) -> f64 {
    div(1.0, a, rounding)
}

/// Computes the square root of `a` and rounds it as `rounding` says (PTX's `sqrt.f64`).
#[inline]
pub fn sqrt(a: f64, rounding: Rounding) -> f64 {
    match Exact::from_f64(a) {
        Some(exact) if rounding != Rounding::Nearest && !exact.negative => {
            finish(root(exact), rounding)
        }
        _ => a.sqrt(),
    }
}

fn finish(exact: Exact, rounding: Rounding) -> f64 {
    f64::from_bits(F64.round(exact, rounding))
}

fn product(a: Exact, b: Exact) -> Exact {
    Exact {
        negative: a.negative != b.negative,
        significand: a.significand * b.significand,
        exponent: a.exponent + b.exponent,
        sticky: false,
    }
}

fn quotient(a: Exact, b: Exact) -> Exact {
    // 53 and 75 more digits over 53: the quotient has at least 75.
    let (a, b) = (a.normalized(127), b.normalized(52));
    Exact {
        negative: a.negative != b.negative,
        significand: a.significand / b.significand,
        exponent: a.exponent - b.exponent,
        sticky: a.significand % b.significand != 0,
    }
}

fn root(a: Exact) -> Exact {
    let mut a = a.normalized(125);
    // The root halves the exponent, so it must be even.
    if a.exponent & 1 == 1 {
        a.significand <<= 1;
        a.exponent -= 1;
    }
    let root = a.significand.isqrt();
    Exact {
        negative: false,
        significand: root,
        exponent: a.exponent / 2,
        sticky: root * root != a.significand,
    }
}

fn directed_fma(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    let finite = a.is_finite() && b.is_finite() && c.is_finite();
    let factors = Exact::from_f64(a).zip(Exact::from_f64(b));
    match (factors, Exact::from_f64(c)) {
        _ if !finite => a.mul_add(b, c),
        (Some((a, b)), Some(c)) => match sum(product(a, b), c) {
            Some(exact) => finish(exact, rounding),
            None => zero(rounding),
        },
        (Some((a, b)), None) => finish(product(a, b), rounding),
        (None, Some(_)) => c,
        // Zero plus zero.
        (None, None) => {
            let negative = a.is_sign_negative() != b.is_sign_negative();
            if negative == c.is_sign_negative() {
                c
            } else {
                zero(rounding)
            }
        }
    }
}

/// The sign of an exact zero that comes of unlike signs.
fn zero(rounding: Rounding) -> f64 {
    if rounding == Rounding::Down {
        -0.0
    } else {
        0.0
    }
}

/// `a + b`, of which neither has more than 106 digits; `None` for exact zero.
fn sum(a: Exact, b: Exact) -> Option<Exact> {
    // Bit 125 on top leaves room for a carry, and 20 zeros below.
    let (a, b) = (a.normalized(125), b.normalized(125));
    let a_larger = (a.exponent, a.significand) >= (b.exponent, b.significand);
    let (large, small) = if a_larger { (a, b) } else { (b, a) };
    let distance = large.exponent.abs_diff(small.exponent);
    let shifted = small.significand.checked_shr(distance).unwrap_or(0);
    let sticky = shifted.checked_shl(distance) != Some(small.significand);
    let significand = if large.negative == small.negative {
        large.significand + shifted
    } else {
        // Digits were lost: the true difference is a little more than this, as `sticky` says. The
        // loss needs a distance above 20, so the difference keeps 124 digits.
        large.significand - shifted - u128::from(sticky)
    };
    (significand != 0).then_some(Exact {
        negative: large.negative,
        significand,
        exponent: large.exponent,
        sticky,
    })
}

#[cfg(test)]
mod tests {
    use super::super::sampling::{self, referee};
    use super::*;

    fn same(found: f64, wanted: f64) -> bool {
        found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan())
    }

    #[test]
    fn every_mode_agrees_with_the_processor() {
        let values = sampling::doubles(200_000);
        for triple in values.windows(3) {
            let (a, b, c) = (triple[0], triple[1], triple[2]);
            for rounding in Rounding::ALL {
                let pairs = [
                    (add(a, b, rounding), referee::add_f64(a, b, rounding), "add"),
                    (sub(a, b, rounding), referee::sub_f64(a, b, rounding), "sub"),
                    (mul(a, b, rounding), referee::mul_f64(a, b, rounding), "mul"),
                    (div(a, b, rounding), referee::div_f64(a, b, rounding), "div"),
                    (sqrt(a, rounding), referee::sqrt_f64(a, rounding), "sqrt"),
                ];
                for (found, wanted, name) in pairs {
                    assert!(
                        same(found, wanted),
                        "{name} {rounding:?} {a:e} {b:e}: {found:e}, not {wanted:e}"
                    );
                }
                if let Some(wanted) = referee::fma_f64(a, b, c, rounding) {
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
    fn cancellation_keeps_every_digit() {
        let small = 2f64.powi(-30);
        let a = 1.0 + small;
        let exact = 2.0 * small + small * small;
        for rounding in Rounding::ALL {
            assert_eq!(fma(a, a, -1.0, rounding), exact);
        }
        assert_eq!(sub(a, a, Rounding::Down).to_bits(), (-0.0f64).to_bits());
        assert_eq!(sub(a, a, Rounding::Up).to_bits(), 0);
    }
}
