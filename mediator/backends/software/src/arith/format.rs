//! Binary floating-point formats (IEEE 754), and rounding of an exact value to one.

use super::Rounding;

/// Format of a binary floating-point number (IEEE 754): a sign bit, an exponent and a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// Number of bits of the exponent.
    pub exponent_bits: u32,
    /// Number of bits of the fraction, without the hidden bit.
    pub fraction_bits: u32,
}

/// Format of PTX's `.f16`.
pub const F16: Format = Format::new(5, 10);
/// Format of PTX's `.bf16`.
pub const BF16: Format = Format::new(8, 7);
/// Format of PTX's `.f32`.
pub const F32: Format = Format::new(8, 23);
/// Format of PTX's `.f64`.
pub const F64: Format = Format::new(11, 52);

/// A value that may have more digits than a format: `significand · 2^exponent`, and a little more
/// than that (less than one unit of the significand) if `sticky`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub negative: bool,
    /// Digits of the value as an integer, not 0. If `sticky` is set, there must be at least two
    /// bits more than the precision of the format to which the value is rounded.
    pub significand: u128,
    pub exponent: i32,
    pub sticky: bool,
}

impl Format {
    const fn new(exponent_bits: u32, fraction_bits: u32) -> Self {
        Self {
            exponent_bits,
            fraction_bits,
        }
    }

    /// What is added to the exponent.
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Returns the bits of positive infinity.
    pub fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// Returns the sign bit: the bits of a negative zero.
    pub fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    /// Returns the bits of the NaN that PTX operations give as their result: all ones but the sign.
    pub fn canonical_nan(self) -> u64 {
        self.sign_bit() - 1
    }

    /// Rounds `value` to this format, as `rounding` says, and returns its bits. A number too large
    /// becomes infinity or the largest number, as the rounding mode demands.
    pub(super) fn round(self, value: Exact, rounding: Rounding) -> u64 {
        let precision = self.fraction_bits.cast_signed() + 1;
        let length = 128 - value.significand.leading_zeros().cast_signed();
        let exponent_min = 1 - self.bias();
        let top = value.exponent + length - 1;
        // Exponent of the last place of the result: subnormal numbers share the smallest.
        let last = top.max(exponent_min) - (precision - 1);
        let (mut kept, half, rest) = cut(value.significand, last - value.exponent);
        let rest = rest || value.sticky;
        let nearest = half && (rest || kept & 1 == 1);
        let up = (half || rest) && is_away(rounding, value.negative, nearest);
        kept += u64::from(up);
        // The hidden bit, added to the exponent field below, makes a normal number of a subnormal
        // one, and a carry out of the fraction moves on to the next exponent, all by itself.
        let field = last + (precision - 1) + self.bias() - 1;
        let sign = if value.negative { self.sign_bit() } else { 0 };
        // The largest number is one less than infinity.
        let largest = u64::from(!is_away(rounding, value.negative, true));
        let overflow = sign | (self.infinity() - largest);
        if field > 2 * self.bias() {
            return overflow;
        }
        let magnitude = (u64::from(field.unsigned_abs()) << self.fraction_bits) + kept;
        if magnitude < self.infinity() {
            sign | magnitude
        } else {
            overflow
        }
    }

    /// Rounds an f64 to this format, as `rounding` says, and returns its bits. NaN becomes the
    /// canonical NaN.
    pub fn round_f64(self, value: f64, rounding: Rounding) -> u64 {
        let sign = self.sign_bit() * u64::from(value.is_sign_negative());
        if value.is_nan() {
            return self.canonical_nan();
        }
        if value.is_infinite() {
            return sign | self.infinity();
        }
        match Exact::from_f64(value) {
            Some(exact) => self.round(exact, rounding),
            None => sign,
        }
    }

    /// Converts `value`, which is an i64 if `signed` and otherwise a u64, to this format, rounded
    /// as `rounding` says. Returns the bits.
    pub fn round_integer(self, value: u64, signed: bool, rounding: Rounding) -> u64 {
        let negative = signed && value.cast_signed() < 0;
        let magnitude = if negative {
            value.wrapping_neg()
        } else {
            value
        };
        if magnitude == 0 {
            return 0;
        }
        let exact = Exact {
            negative,
            significand: u128::from(magnitude),
            exponent: 0,
            sticky: false,
        };
        self.round(exact, rounding)
    }
}

impl Exact {
    /// Returns `value` exactly; `None` if it is zero, infinite or NaN.
    pub fn from_f64(value: f64) -> Option<Self> {
        let bits = value.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        let field = ((bits >> 52) & 0x7ff) as i32;
        if field == 0x7ff || (field == 0 && fraction == 0) {
            return None;
        }
        let hidden = if field == 0 { 0 } else { 1 << 52 };
        Some(Self {
            negative: value.is_sign_negative(),
            significand: u128::from(fraction | hidden),
            exponent: field.max(1) - 1075,
            sticky: false,
        })
    }

    /// Returns the same value with a significand whose highest set bit is bit `top`, which must not
    /// be below the present one.
    pub fn normalized(self, top: u32) -> Self {
        let shift = self.significand.leading_zeros() - (127 - top);
        Self {
            significand: self.significand << shift,
            exponent: self.exponent - shift.cast_signed(),
            ..self
        }
    }
}

/// Whether a number is rounded away from zero; `nearest` says what rounding to nearest does.
fn is_away(rounding: Rounding, negative: bool, nearest: bool) -> bool {
    match rounding {
        Rounding::Nearest => nearest,
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    }
}

/// `value` without its last `places` binary places, the highest of those, and whether any other of
/// them is set. Negative `places` append zeros; the caller knows that they fit.
fn cut(value: u128, places: i32) -> (u64, bool, bool) {
    if places <= 0 {
        let kept = value << places.unsigned_abs().min(127);
        return (kept as u64, false, false);
    }
    let places = places.unsigned_abs();
    if places > 128 {
        return (0, false, value != 0);
    }
    let below = value & ((1_u128 << (places - 1)) - 1);
    let half = (value >> (places - 1)) & 1 == 1;
    let kept = value.checked_shr(places).unwrap_or(0);
    (kept as u64, half, below != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f64_to_f32_to_nearest_is_the_hardware_conversion() {
        for value in super::super::sampling::doubles(200_000) {
            let found = F32.round_f64(value, Rounding::Nearest) as u32;
            if value.is_nan() {
                assert_eq!(found, 0x7fff_ffff);
            } else {
                assert_eq!(found, (value as f32).to_bits(), "{value:e}");
            }
        }
    }

    #[test]
    fn f64_survives_every_rounding() {
        for value in super::super::sampling::doubles(50_000) {
            for rounding in Rounding::ALL {
                if !value.is_nan() {
                    assert_eq!(F64.round_f64(value, rounding), value.to_bits());
                }
            }
        }
    }

    #[test]
    fn integers_to_nearest_are_the_hardware_conversions() {
        for value in super::super::sampling::words(100_000) {
            let round =
                |format: Format, signed| format.round_integer(value, signed, Rounding::Nearest);
            assert_eq!(round(F32, false), u64::from((value as f32).to_bits()));
            assert_eq!(round(F64, false), (value as f64).to_bits());
            let signed = value.cast_signed();
            assert_eq!(round(F32, true), u64::from((signed as f32).to_bits()));
            assert_eq!(round(F64, true), (signed as f64).to_bits());
        }
    }

    #[test]
    fn overflow_and_underflow_follow_the_mode() {
        let round = |value, rounding| F16.round_f64(value, rounding);
        assert_eq!(round(65520.0, Rounding::Nearest), 0x7c00);
        assert_eq!(round(65519.9, Rounding::Nearest), 0x7bff);
        assert_eq!(round(1e300, Rounding::Zero), 0x7bff);
        assert_eq!(round(-1e300, Rounding::Down), 0xfc00);
        assert_eq!(round(-1e300, Rounding::Up), 0xfbff);
        assert_eq!(round(1e-300, Rounding::Up), 1);
        assert_eq!(round(-1e-300, Rounding::Up), 0x8000);
        // Half of the smallest subnormal number is a tie, and zero is even.
        assert_eq!(round(2f64.powi(-25), Rounding::Nearest), 0);
        assert_eq!(round(2f64.powi(-25) * 1.0001, Rounding::Nearest), 1);
        // The largest subnormal number rounds up into the normal ones.
        assert_eq!(
            round(2f64.powi(-14) * (1.0 - 2f64.powi(-12)), Rounding::Nearest),
            0x400
        );
    }
}
