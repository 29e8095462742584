//! 8-bit floating-point formats, which PTX only converts, always two at a time (PTX ISA,
//! "Alternate Floating-Point Data Formats" and "cvt").

use super::float16::{self, Half};

crate::modifiers::modifiers! {
    /// An 8-bit floating-point format of PTX. The words are those of a pair.
    Float8 {
        /// `.e4m3`: 4 bits of exponent, 3 of fraction. It has no infinities; of the codes with the
        /// largest exponent, only the one with all bits set is NaN.
        E4M3 = "e4m3x2",
        /// `.e5m2`: 5 bits of exponent, 2 of fraction; the upper byte of an f16.
        E5M2 = "e5m2x2",
    }
}

/// Code of the canonical NaN, which conversions give as their result, in both formats.
pub const NAN: u8 = 0x7f;
const SIGN: u8 = 0x80;

impl Float8 {
    /// Returns the bits of the fraction, without the hidden bit.
    fn fraction_bits(self) -> i32 {
        match self {
            Self::E4M3 => 3,
            Self::E5M2 => 2,
        }
    }

    /// Returns the exponent of the smallest normal number, which the subnormal ones share.
    fn exponent_min(self) -> i32 {
        match self {
            Self::E4M3 => -6,
            Self::E5M2 => -14,
        }
    }

    /// Returns the largest finite number.
    fn largest(self) -> f32 {
        match self {
            Self::E4M3 => 448.0,
            Self::E5M2 => 57344.0,
        }
    }

    /// Rounds `value` to the nearest number of this format, ties to even, and returns its code. All
    /// numbers beyond the largest finite one become that one, infinities too (PTX's `.satfinite`).
    #[inline]
    pub fn nearest(self, value: f32) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        let magnitude = value.abs().min(self.largest());
        let exponent = (magnitude.to_bits() >> 23).cast_signed() - 127;
        let exponent = exponent.max(self.exponent_min());
        // A power of two, so the product is exact: the number in units of its last place.
        let places = self.fraction_bits() - exponent;
        let scale = f32::from_bits(((127 + places) << 23).cast_unsigned());
        let kept = (magnitude * scale).round_ties_even() as u8;
        // The hidden bit adds one to the exponent of a normal number, and a carry out of the
        // fraction another one, all by itself.
        let field = (exponent - self.exponent_min()) << self.fraction_bits();
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        sign | (field as u8 + kept)
    }

    /// Returns the bits of the f16 with the number that `code` stands for: exactly, since f16 has
    /// all of them. NaN becomes the canonical NaN.
    #[inline]
    pub fn widen(self, code: u8) -> u16 {
        if self.is_nan(code) {
            return float16::NAN;
        }
        let bits = u16::from(code);
        let sign = u16::from(code & SIGN) << 8;
        match self {
            // As an f16, its exponent counts from 15 instead of 7.
            Self::E4M3 => {
                let scaled = Half::F16.widen((bits & 0x7f) << 7);
                sign | Half::F16.nearest(scaled * 256.0)
            }
            Self::E5M2 => bits << 8,
        }
    }

    fn is_nan(self, code: u8) -> bool {
        let last_number = match self {
            Self::E4M3 => 0x7e,
            // Infinity.
            Self::E5M2 => 0x7c,
        };
        code & !SIGN > last_number
    }

    /// Converts two f32 values and returns their codes, that of `upper` in the upper byte (PTX's
    /// `cvt.rn.satfinite.e4m3x2.f32`).
    #[inline]
    pub fn pair(self, upper: f32, lower: f32) -> u16 {
        join(self.nearest(upper), self.nearest(lower))
    }

    /// Converts the two f16 values of `halves` (PTX's `cvt.rn.satfinite.e4m3x2.f16x2`).
    #[inline]
    pub fn narrow_pair(self, halves: u32) -> u16 {
        let [lower, upper] = [halves as u16, (halves >> 16) as u16];
        self.pair(Half::F16.widen(upper), Half::F16.widen(lower))
    }

    /// Converts the two codes of `pair` to f16 (PTX's `cvt.rn.f16x2.e4m3x2`).
    #[inline]
    pub fn widen_pair(self, pair: u16) -> u32 {
        let [lower, upper] = pair.to_le_bytes();
        u32::from(self.widen(upper)) << 16 | u32::from(self.widen(lower))
    }
}

/// Replaces negative numbers of a pair by +0, as PTX's `.relu` does. A NaN must be canonical: its
/// sign is not set, so it stays.
#[inline]
pub fn rectify_pair(pair: u16) -> u16 {
    let rectify = |code: u8| if code & SIGN == 0 { code } else { 0 };
    let [lower, upper] = pair.to_le_bytes();
    join(rectify(upper), rectify(lower))
}

fn join(upper: u8, lower: u8) -> u16 {
    u16::from_le_bytes([lower, upper])
}

#[cfg(test)]
#[path = "float8_tests.rs"]
mod tests;
