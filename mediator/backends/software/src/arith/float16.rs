//! `.f16` and `.bf16` arithmetic on register contents, each operation rounded once, to nearest.

use super::float32::{self, narrow_odd};
use super::{Rounding, compare, format};

/// A 16-bit floating-point format of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// `.f16`: 5 bits of exponent, 10 of fraction.
    F16,
    /// `.bf16`: 8 bits of exponent, 7 of fraction; the upper half of an f32.
    BF16,
}

/// Bits of the canonical NaN, which operations give as their result, in both formats.
pub const NAN: u16 = 0x7fff;
const SIGN: u16 = 0x8000;

impl Half {
    /// Returns the number with the bits `bits` as an f32, which holds it exactly.
    #[inline]
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Self::F16 => ::half::f16::from_bits(bits).to_f32(),
            Self::BF16 => f32::from_bits(u32::from(bits) << 16),
        }
    }

    /// Rounds `value` to the nearest number of this format, ties to even, and returns its bits
    /// (PTX's `cvt.rn.f16.f32`).
    #[inline]
    pub fn nearest(self, value: f32) -> u16 {
        if value.is_nan() {
            return NAN;
        }
        match self {
            Self::F16 => ::half::f16::from_f32(value).to_bits(),
            Self::BF16 => ::half::bf16::from_f32(value).to_bits(),
        }
    }

    /// Rounds `value` once to a number of this format, as `rounding` says, and returns its bits
    /// (PTX's `cvt.rn.f16.f64` or `cvt.rz.bf16.f32`).
    #[inline]
    pub fn round(self, value: f64, rounding: Rounding) -> u16 {
        if rounding == Rounding::Nearest {
            return self.nearest(narrow_odd(value));
        }
        self.format().round_f64(value, rounding) as u16
    }

    /// Returns how many bits the exponent and the fraction of this format have.
    pub fn format(self) -> format::Format {
        match self {
            Self::F16 => format::F16,
            Self::BF16 => format::BF16,
        }
    }

    fn infinity(self) -> u16 {
        self.format().infinity() as u16
    }

    /// Returns whether `bits` are those of a NaN in this format.
    #[inline]
    pub fn is_nan(self, bits: u16) -> bool {
        bits & !SIGN > self.infinity()
    }

    /// Replaces the bits of a subnormal number by those of a zero of the same sign, as PTX's `.ftz`
    /// does.
    #[inline]
    pub fn flush(self, bits: u16) -> u16 {
        let subnormal = bits & self.infinity() == 0;
        if subnormal { bits & SIGN } else { bits }
    }

    /// Limits the number with the bits `bits` to the range from 0 to 1, as PTX's `.sat` does; NaN
    /// becomes +0.
    #[inline]
    pub fn saturate(self, bits: u16) -> u16 {
        let one = self.nearest(1.0);
        if bits & SIGN != 0 || self.is_nan(bits) {
            0
        } else {
            bits.min(one)
        }
    }

    /// Replaces a negative number by +0, as PTX's `.relu` does; NaN becomes the canonical NaN.
    #[inline]
    pub fn rectify(self, bits: u16) -> u16 {
        if self.is_nan(bits) {
            NAN
        } else if bits & SIGN != 0 {
            0
        } else {
            bits
        }
    }

    /// Computes `a + b`, rounded to nearest. Operands and result are bits of this format.
    #[inline]
    pub fn add(self, a: u16, b: u16) -> u16 {
        self.fma_f32(self.widen(a), 1.0, self.widen(b))
    }

    /// Computes `a - b`, rounded to nearest. Operands and result are bits of this format.
    #[inline]
    pub fn sub(self, a: u16, b: u16) -> u16 {
        self.fma_f32(self.widen(a), 1.0, -self.widen(b))
    }

    /// Computes `a * b`, rounded to nearest. Operands and result are bits of this format.
    #[inline]
    pub fn mul(self, a: u16, b: u16) -> u16 {
        // At most 22 digits: exact in f64, whose exponents suffice for both formats.
        self.nearest_of_odd(f64::from(self.widen(a)) * f64::from(self.widen(b)))
    }

    /// Computes `a * b + c` exactly and rounds it once, to nearest. Operands and result are bits of
    /// this format.
    #[inline]
    pub fn fma(self, a: u16, b: u16, c: u16) -> u16 {
        self.fma_f32(self.widen(a), self.widen(b), self.widen(c))
    }

    #[inline]
    fn fma_f32(self, a: f32, b: f32, c: f32) -> u16 {
        let product = f64::from(a) * f64::from(b);
        self.nearest_of_odd(float32::sum(product, f64::from(c), Rounding::Nearest))
    }

    /// From an exact value, or one rounded to odd.
    #[inline]
    fn nearest_of_odd(self, value: f64) -> u16 {
        self.nearest(narrow_odd(value))
    }

    /// Returns the lesser of two numbers; if one operand is NaN, the other one.
    #[inline]
    pub fn min(self, a: u16, b: u16) -> u16 {
        self.nearest(compare::min_f32(self.widen(a), self.widen(b)))
    }

    /// Returns the greater of two numbers; if one operand is NaN, the other one.
    #[inline]
    pub fn max(self, a: u16, b: u16) -> u16 {
        self.nearest(compare::max_f32(self.widen(a), self.widen(b)))
    }

    /// Returns the lesser of two numbers, or NaN if an operand is NaN (PTX's `min.NaN`).
    #[inline]
    pub fn min_nan(self, a: u16, b: u16) -> u16 {
        self.nearest(compare::min_nan_f32(self.widen(a), self.widen(b)))
    }

    /// Returns the greater of two numbers, or NaN if an operand is NaN (PTX's `max.NaN`).
    #[inline]
    pub fn max_nan(self, a: u16, b: u16) -> u16 {
        self.nearest(compare::max_nan_f32(self.widen(a), self.widen(b)))
    }

    /// Returns the bits of the same number with the other sign.
    #[inline]
    pub fn neg(self, a: u16) -> u16 {
        a ^ SIGN
    }

    /// Returns the bits of the same number without its sign.
    #[inline]
    pub fn abs(self, a: u16) -> u16 {
        a & !SIGN
    }

    /// Half the place of 1, for bounds in tests.
    #[cfg(test)]
    fn relative_error(self) -> f64 {
        2f64.powi(-(self.format().fraction_bits.cast_signed()) - 1)
    }
}

/// Applies `operation` to each 16-bit half of `a` (PTX's `.f16x2` and `.bf16x2`).
#[inline]
pub fn pair1(a: u32, operation: impl Fn(u16) -> u16) -> u32 {
    let low = operation(a as u16);
    let high = operation((a >> 16) as u16);
    u32::from(high) << 16 | u32::from(low)
}

/// Applies `operation` to the lower 16-bit halves of both operands, and to the upper ones.
#[inline]
pub fn pair2(a: u32, b: u32, operation: impl Fn(u16, u16) -> u16) -> u32 {
    let low = operation(a as u16, b as u16);
    let high = operation((a >> 16) as u16, (b >> 16) as u16);
    u32::from(high) << 16 | u32::from(low)
}

/// Applies `operation` to the lower 16-bit halves of all three operands, and to the upper ones.
#[inline]
pub fn pair3(a: u32, b: u32, c: u32, operation: impl Fn(u16, u16, u16) -> u16) -> u32 {
    let low = operation(a as u16, b as u16, c as u16);
    let high = operation((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16);
    u32::from(high) << 16 | u32::from(low)
}

#[cfg(test)]
mod tests {
    use super::super::format::{Exact, Format};
    use super::super::sampling::{Random, doubles};
    use super::*;

    const BOTH: [Half; 2] = [Half::F16, Half::BF16];

    /// A finite value as an integer multiple of 2^-280: exact for sums of products of both formats.
    fn fixed(value: f32) -> (i128, i32) {
        match Exact::from_f64(f64::from(value)) {
            None => (0, 0),
            Some(exact) => {
                let magnitude = exact.significand.cast_signed();
                let signed = if exact.negative {
                    -magnitude
                } else {
                    magnitude
                };
                (signed, exact.exponent)
            }
        }
    }

    /// `a * b + c` rounded once, from integers; `None` where 128 bits do not suffice or the sum is
    /// zero.
    fn exact_fma(format: Format, a: f32, b: f32, c: f32) -> Option<u16> {
        let ((a, ea), (b, eb), (c, ec)) = (fixed(a), fixed(b), fixed(c));
        // Trailing zeros of the f64 significands make room.
        let strip = |value: i128, exponent: i32| {
            let zeros = value.trailing_zeros().min(127);
            if value == 0 {
                (0, 0)
            } else {
                (value >> zeros, exponent + zeros.cast_signed())
            }
        };
        let ((a, ea), (b, eb), (c, ec)) = (strip(a, ea), strip(b, eb), strip(c, ec));
        let (product, ep) = (a * b, ea + eb);
        let low = if c == 0 {
            ep
        } else if product == 0 {
            ec
        } else {
            ep.min(ec)
        };
        let lift = |value: i128, exponent: i32| {
            let shift = if value == 0 {
                0
            } else {
                (exponent - low).unsigned_abs()
            };
            (shift < 90).then(|| value << shift)
        };
        let sum = lift(product, ep)? + lift(c, ec)?;
        (sum != 0).then(|| {
            let exact = Exact {
                negative: sum < 0,
                significand: sum.unsigned_abs(),
                exponent: low,
                sticky: false,
            };
            format.round(exact, Rounding::Nearest) as u16
        })
    }

    #[test]
    fn every_f16_and_bf16_number_survives_conversion() {
        for half in BOTH {
            for bits in 0..=u16::MAX {
                let wanted = if half.is_nan(bits) { NAN } else { bits };
                assert_eq!(half.nearest(half.widen(bits)), wanted);
                for rounding in Rounding::ALL {
                    assert_eq!(half.round(f64::from(half.widen(bits)), rounding), wanted);
                }
            }
        }
    }

    #[test]
    fn unary_operations_are_right_for_every_number() {
        for half in BOTH {
            for bits in 0..=u16::MAX {
                let value = half.widen(bits);
                if value.is_nan() {
                    assert_eq!((half.saturate(bits), half.rectify(bits)), (0, NAN));
                    assert!(half.is_nan(half.neg(bits)) && half.is_nan(half.abs(bits)));
                    continue;
                }
                assert_eq!(half.widen(half.neg(bits)), -value);
                assert_eq!(half.widen(half.abs(bits)), value.abs());
                assert_eq!(half.widen(half.saturate(bits)), value.clamp(0.0, 1.0));
                assert_eq!(half.widen(half.rectify(bits)), value.max(0.0));
                let smallest = if half == Half::F16 {
                    2f32.powi(-14)
                } else {
                    f32::MIN_POSITIVE
                };
                let flushed = if value.abs() < smallest { 0.0 } else { value };
                assert_eq!(half.widen(half.flush(bits)), flushed);
            }
        }
    }

    #[test]
    fn rounding_from_f64_agrees_with_the_exact_one() {
        for value in doubles(200_000) {
            for half in BOTH {
                let wanted = half.format().round_f64(value, Rounding::Nearest) as u16;
                assert_eq!(
                    half.round(value, Rounding::Nearest),
                    wanted,
                    "{half:?} {value:e}"
                );
            }
        }
    }

    #[test]
    fn sums_and_products_are_rounded_once() {
        let mut random = Random(3);
        for _ in 0..400_000 {
            let word = random.next();
            let (a, b, c) = (word as u16, (word >> 16) as u16, (word >> 32) as u16);
            for half in BOTH {
                let [x, y, z] = [a, b, c].map(|bits| half.widen(bits));
                if !(x.is_finite() && y.is_finite() && z.is_finite()) {
                    continue;
                }
                let format = half.format();
                let check = |found: u16, wanted: Option<u16>, name: &str| {
                    if let Some(wanted) = wanted {
                        assert_eq!(found, wanted, "{name} {half:?} {x:e} {y:e} {z:e}");
                    }
                };
                check(half.add(a, b), exact_fma(format, x, 1.0, y), "add");
                check(half.sub(a, b), exact_fma(format, x, 1.0, -y), "sub");
                check(half.mul(a, b), exact_fma(format, x, y, 0.0), "mul");
                check(half.fma(a, b, c), exact_fma(format, x, y, z), "fma");
            }
        }
    }

    #[test]
    fn special_values() {
        let half = Half::F16;
        let (one, infinity) = (0x3c00, 0x7c00);
        assert_eq!(half.sub(infinity, infinity), NAN);
        assert_eq!(half.add(one, half.neg(one)), 0);
        assert_eq!(half.min(NAN, one), one);
        assert_eq!(half.min_nan(NAN, one), NAN);
        assert_eq!(half.min(0, SIGN), SIGN);
        assert_eq!(half.max(SIGN, 0), 0);
        assert_eq!(
            pair2(0x3c00_0000, 0x3c00_3c00, |a, b| half.add(a, b)),
            0x4000_3c00
        );
        assert!(half.relative_error() < Half::BF16.relative_error());
    }
}
