//! `cvt`: between integers and floats of any size (PTX ISA, "cvt" and "Scalar Conversions").
//!
//! Floats of 16 and 32 bits are widened to f64 by the caller, which is exact; integers are carried
//! in 64 bits.

use super::Rounding;
use super::format::{F32, Format};

/// An integer type of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integer {
    /// Width in bits: 8, 16, 32 or 64; also 2 or 4 in PTX's `cvt.pack`.
    pub bits: u32,
    /// Whether the type is signed (`.s32`) rather than unsigned (`.u32`).
    pub signed: bool,
}

impl Integer {
    /// The least number of the type.
    fn least(self) -> i128 {
        -(i128::from(self.signed) << (self.bits - 1))
    }

    /// The greatest number of the type.
    fn greatest(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    /// Returns the number of this type that the low bits of `register` hold.
    #[inline]
    pub fn read(self, register: u64) -> i128 {
        let spare = 64 - self.bits;
        if self.signed {
            i128::from((register << spare).cast_signed() >> spare)
        } else {
            i128::from((register << spare) >> spare)
        }
    }
}

/// Rounds `value` to an integer of type `target`, as `rounding` says, and returns it extended to 64
/// bits (PTX's `cvt`). Numbers beyond the type become its least or greatest. NaN becomes zero; but
/// if `value` was an f64 (`source_is_f64`) or `target` has 64 bits, NaN becomes the number with
/// only the highest bit of the type set.
#[inline]
pub fn float_to_integer(
    value: f64,
    rounding: Rounding,
    target: Integer,
    source_is_f64: bool,
) -> u64 {
    if value.is_nan() {
        if !source_is_f64 && target.bits < 64 {
            return 0;
        }
        return target.read(1 << (target.bits - 1)) as u64;
    }
    let whole = integral_f64(value, rounding);
    // Casts from floats clamp at the ends of 64 bits, and the shifts at those of shorter types.
    let spare = 64 - target.bits;
    if target.signed {
        let (least, greatest) = (i64::MIN >> spare, i64::MAX >> spare);
        (whole as i64).clamp(least, greatest).cast_unsigned()
    } else {
        (whole as u64).min(u64::MAX >> spare)
    }
}

/// Converts the integer of type `source` in `register` to `format`, rounded as `rounding` says, and
/// returns the bits of the float (PTX's `cvt`).
#[inline]
pub fn integer_to_float(register: u64, source: Integer, format: Format, rounding: Rounding) -> u64 {
    let value = source.read(register) as u64;
    format.round_integer(value, source.signed, rounding)
}

/// Converts the integer of type `source` in the low bits of `register` to `target`; a number
/// outside the range of `target` becomes the nearest one in the range (PTX's `cvt.sat`). The result
/// is extended to 64 bits, with its sign if `target` is signed, otherwise with zeros.
#[inline]
pub fn integer_to_integer_sat(register: u64, source: Integer, target: Integer) -> u64 {
    source
        .read(register)
        .clamp(target.least(), target.greatest()) as u64
}

macro_rules! integral {
    ($name:ident, $float:ty) => {
        /// Removes the fraction of `value`, rounding as `rounding` says (PTX's `cvt.rni` and the
        /// like between floats of one type). The sign stays, even that of zero.
        #[inline]
        pub fn $name(value: $float, rounding: Rounding) -> $float {
            match rounding {
                Rounding::Nearest => value.round_ties_even(),
                Rounding::Zero => value.trunc(),
                Rounding::Down => value.floor(),
                Rounding::Up => value.ceil(),
            }
        }
    };
}

integral!(integral_f32, f32);
integral!(integral_f64, f64);

/// Rounds `value` to 10 bits of fraction, ties away from zero, and returns the bits of an f32
/// (PTX's `cvt.rna.tf32.f32`).
#[inline]
pub fn tf32_nearest_away(value: f32) -> u32 {
    if !value.is_finite() {
        return special(value);
    }
    (value.to_bits() + 0x1000) & !0x1fff
}

/// Rounds `value` to 10 bits of fraction, as `rounding` says, and returns the bits of an f32 (PTX's
/// `cvt.rn.tf32.f32` and `cvt.rz.tf32.f32`).
#[inline]
pub fn tf32(value: f32, rounding: Rounding) -> u32 {
    const TF32: Format = Format {
        exponent_bits: 8,
        fraction_bits: 10,
    };
    if !value.is_finite() {
        return special(value);
    }
    // The same exponents as f32: only the fraction is shorter.
    (TF32.round_f64(f64::from(value), rounding) as u32) << 13
}

fn special(value: f32) -> u32 {
    if value.is_nan() {
        F32.canonical_nan() as u32
    } else {
        value.to_bits()
    }
}

/// Limits the signed numbers `a` and `b` to the range of `target` and packs them (PTX's
/// `cvt.pack.sat`): `b` in the lowest bits, `a` above it, then the low bits of `c`.
#[inline]
pub fn pack(a: u32, b: u32, c: u32, target: Integer) -> u32 {
    let clamp = |register: u32| {
        let number = i128::from(register.cast_signed()).clamp(target.least(), target.greatest());
        (number as u64) & ((1 << target.bits) - 1)
    };
    let pair = clamp(a) << target.bits | clamp(b);
    (u64::from(c) << (2 * target.bits) | pair) as u32
}

#[cfg(test)]
mod tests {
    use super::super::float32;
    use super::super::format::{F16, F64};
    use super::super::sampling::{doubles, singles, words};
    use super::*;

    const fn integer(bits: u32, signed: bool) -> Integer {
        Integer { bits, signed }
    }

    #[test]
    fn truncation_agrees_with_rust() {
        let to = |value, bits, signed| {
            float_to_integer(value, Rounding::Zero, integer(bits, signed), false)
        };
        for value in doubles(100_000).into_iter().filter(|value| !value.is_nan()) {
            assert_eq!(to(value, 8, false), u64::from(value as u8));
            assert_eq!(to(value, 16, false), u64::from(value as u16));
            assert_eq!(to(value, 32, false), u64::from(value as u32));
            assert_eq!(to(value, 64, false), value as u64);
            assert_eq!(to(value, 8, true), i64::from(value as i8).cast_unsigned());
            assert_eq!(to(value, 16, true), i64::from(value as i16).cast_unsigned());
            assert_eq!(to(value, 32, true), i64::from(value as i32).cast_unsigned());
            assert_eq!(to(value, 64, true), (value as i64).cast_unsigned());
        }
    }

    #[test]
    fn roundings_of_halves() {
        let to =
            |value, rounding| float_to_integer(value, rounding, integer(32, true), false) as i32;
        let cases = [
            (2.5, [2, 2, 2, 3]),
            (3.5, [4, 3, 3, 4]),
            (-2.5, [-2, -2, -3, -2]),
            (-0.1, [0, 0, -1, 0]),
            (1e10, [i32::MAX; 4]),
            (f64::NEG_INFINITY, [i32::MIN; 4]),
        ];
        for (value, wanted) in cases {
            assert_eq!(
                Rounding::ALL.map(|rounding| to(value, rounding)),
                wanted,
                "{value}"
            );
        }
        assert_eq!(integral_f32(-0.4, Rounding::Nearest).to_bits(), 0x8000_0000);
        assert_eq!(integral_f32(-0.4, Rounding::Down), -1.0);
    }

    #[test]
    fn nan_is_zero_only_from_short_floats_to_short_integers() {
        let to = |bits, signed, wide| {
            float_to_integer(f64::NAN, Rounding::Zero, integer(bits, signed), wide)
        };
        assert_eq!((to(32, true, false), to(8, false, false)), (0, 0));
        assert_eq!(to(32, false, true), 0x8000_0000);
        assert_eq!(to(32, true, true), i64::from(i32::MIN).cast_unsigned());
        assert_eq!(
            (to(64, true, false), to(64, false, false)),
            (1 << 63, 1 << 63)
        );
    }

    #[test]
    fn directed_narrowing_brackets_the_value() {
        for value in doubles(100_000)
            .into_iter()
            .filter(|value| value.is_finite())
        {
            for rounding in Rounding::ALL {
                let found = float32::narrow(value, rounding);
                assert_eq!(
                    u64::from(found.to_bits()),
                    F32.round_f64(value, rounding),
                    "{value:e} {rounding:?}"
                );
            }
            let down = f64::from(float32::narrow(value, Rounding::Down));
            let up = f64::from(float32::narrow(value, Rounding::Up));
            assert!(down <= value && value <= up);
            assert!(
                down == up
                    || float32::narrow(value, Rounding::Down).next_up()
                        == float32::narrow(value, Rounding::Up)
            );
        }
    }

    #[test]
    fn integers_to_floats_bracket_the_value() {
        for word in words(50_000) {
            let to =
                |rounding| f64::from_bits(integer_to_float(word, integer(64, true), F64, rounding));
            let exact = i128::from(word.cast_signed());
            assert!(to(Rounding::Down) as i128 <= exact && exact <= to(Rounding::Up) as i128);
            assert!((to(Rounding::Zero) as i128).abs() <= exact.abs());
        }
        assert_eq!(
            integer_to_float(0x1_ff, integer(8, true), F32, Rounding::Nearest),
            0xbf80_0000
        );
        assert_eq!(
            integer_to_float(65_535, integer(16, false), F16, Rounding::Zero),
            0x7bff
        );
        assert_eq!(
            integer_to_float(u64::MAX, integer(64, false), F16, Rounding::Nearest),
            0x7c00
        );
    }

    #[test]
    fn integers_clamp_and_chop() {
        let (s8, u8, s32, u32) = (
            integer(8, true),
            integer(8, false),
            integer(32, true),
            integer(32, false),
        );
        assert_eq!(integer_to_integer_sat(300, s32, u8), 255);
        assert_eq!(integer_to_integer_sat(u64::MAX, s32, u8), 0);
        assert_eq!(
            integer_to_integer_sat(0xffff_ff00, s32, s8),
            (-128_i64).cast_unsigned()
        );
        assert_eq!(integer_to_integer_sat(0xffff_ffff, u32, s32), 0x7fff_ffff);
    }

    #[test]
    fn tf32_keeps_ten_bits() {
        for value in singles(100_000) {
            let (near, away) = (tf32(value, Rounding::Nearest), tf32_nearest_away(value));
            if value.is_nan() {
                assert_eq!((near, away), (0x7fff_ffff, 0x7fff_ffff));
                continue;
            }
            assert_eq!((near & 0x1fff, away & 0x1fff), (0, 0));
            assert_eq!(tf32(value, Rounding::Zero), value.to_bits() & !0x1fff);
            if value.to_bits() & 0x1fff == 0x1000 {
                assert_eq!(away, value.to_bits() + 0x1000);
                assert_eq!(near & 0x2000, 0);
            } else {
                assert_eq!(near, away);
            }
        }
    }

    #[test]
    fn packing() {
        assert_eq!(
            pack(70_000, (-5_i32).cast_unsigned(), 0, integer(16, false)),
            0xffff_0000
        );
        assert_eq!(
            pack(1, (-5_i32).cast_unsigned(), 0, integer(16, true)),
            0x0001_fffb
        );
        assert_eq!(pack(300, 1, 0xabcd_1234, integer(8, false)), 0x1234_ff01);
        assert_eq!(pack(9, 3, 0x00ab_cdef, integer(4, false)), 0xabcd_ef93);
    }
}
