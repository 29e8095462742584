//! Minimum, maximum, signs and classes of floats.

/// The NaN that `.f32` operations of PTX give as their result.
pub const NAN_F32: f32 = f32::from_bits(0x7fff_ffff);
/// The NaN that `.f64` operations of PTX give as their result.
pub const NAN_F64: f64 = f64::from_bits(0x7fff_ffff_ffff_ffff);

crate::modifiers::modifiers! {
    /// Property of a floating-point number that PTX's `testp` tests.
    Property {
        /// The number is neither infinite nor NaN.
        Finite = "finite",
        /// The number is positive or negative infinity.
        Infinite = "infinite",
        /// The value is not NaN.
        Number = "number",
        /// The value is NaN.
        NotANumber = "notanumber",
        /// The number is zero, or has full precision.
        Normal = "normal",
        /// The number is so small that it has less than full precision.
        Subnormal = "subnormal",
    }
}

/// The functions of one float type: PTX orders -0 below +0, and lets numbers win over NaN.
macro_rules! comparisons {
    ($float:ty, $nan:ident, $min:ident, $max:ident, $testp:ident) => {
        /// Returns the lesser of two numbers, where -0 is less than +0 (PTX's `min`). If one
        /// operand is NaN, returns the other one.
        #[inline]
        pub fn $min(a: $float, b: $float) -> $float {
            if a < b || b.is_nan() {
                if a.is_nan() { $nan } else { a }
            } else if a == b {
                // Equal numbers differ in the sign of zero at most; the negative one is less.
                <$float>::from_bits(a.to_bits() | b.to_bits())
            } else {
                b
            }
        }

        /// Returns the greater of two numbers, where +0 is greater than -0 (PTX's `max`). If one
        /// operand is NaN, returns the other one.
        #[inline]
        pub fn $max(a: $float, b: $float) -> $float {
            if a > b || b.is_nan() {
                if a.is_nan() { $nan } else { a }
            } else if a == b {
                <$float>::from_bits(a.to_bits() & b.to_bits())
            } else {
                b
            }
        }

        /// Returns whether `a` has the property (PTX's `testp`).
        #[inline]
        pub fn $testp(property: Property, a: $float) -> bool {
            match property {
                Property::Finite => a.is_finite(),
                Property::Infinite => a.is_infinite(),
                Property::Number => !a.is_nan(),
                Property::NotANumber => a.is_nan(),
                Property::Normal => a.is_normal() || a == 0.0,
                Property::Subnormal => a.is_subnormal(),
            }
        }
    };
}

comparisons!(f32, NAN_F32, min_f32, max_f32, testp_f32);
comparisons!(f64, NAN_F64, min_f64, max_f64, testp_f64);

/// `choose(a, b)`, or the canonical NaN if `a` or `b` is one.
#[inline(always)]
fn or_nan(a: f32, b: f32, choose: impl Fn(f32, f32) -> f32) -> f32 {
    let nan = a.is_nan() || b.is_nan();
    if nan { NAN_F32 } else { choose(a, b) }
}

/// `choose` of both magnitudes, with the exclusive or of both signs.
#[inline(always)]
fn xorsign(a: f32, b: f32, choose: impl Fn(f32, f32) -> f32) -> f32 {
    let magnitude = choose(a.abs(), b.abs());
    if magnitude.is_nan() {
        magnitude
    } else {
        magnitude.copysign(a) * 1.0_f32.copysign(b)
    }
}

/// Returns the lesser of two numbers, or the canonical NaN if an operand is NaN (PTX's
/// `min.NaN.f32`).
#[inline]
pub fn min_nan_f32(a: f32, b: f32) -> f32 {
    or_nan(a, b, min_f32)
}

/// Returns the greater of two numbers, or the canonical NaN if an operand is NaN (PTX's
/// `max.NaN.f32`).
#[inline]
pub fn max_nan_f32(a: f32, b: f32) -> f32 {
    or_nan(a, b, max_f32)
}

/// Returns the lesser magnitude of two numbers; it is negative if their signs differ (PTX's
/// `min.xorsign.abs.f32`). If one operand is NaN, the result is NaN if `nan` is true, and otherwise
/// the magnitude of the other operand with this sign.
#[inline]
pub fn min_xorsign_f32(a: f32, b: f32, nan: bool) -> f32 {
    xorsign(a, b, if nan { min_nan_f32 } else { min_f32 })
}

/// Returns the greater magnitude of two numbers; it is negative if their signs differ (PTX's
/// `max.xorsign.abs.f32`). If one operand is NaN, the result is NaN if `nan` is true, and otherwise
/// the magnitude of the other operand with this sign.
#[inline]
pub fn max_xorsign_f32(a: f32, b: f32, nan: bool) -> f32 {
    xorsign(a, b, if nan { max_nan_f32 } else { max_f32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_zero_is_less() {
        for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
            assert_eq!(min_f32(a, b).to_bits(), 0x8000_0000);
            assert_eq!(max_f32(a, b).to_bits(), 0);
            assert_eq!(min_f64(f64::from(a), f64::from(b)).to_bits(), 1 << 63);
            assert_eq!(max_f64(f64::from(a), f64::from(b)).to_bits(), 0);
        }
    }

    #[test]
    fn numbers_win_over_nan_unless_asked() {
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)] {
            assert_eq!((min_f32(nan, 2.0), min_f32(2.0, nan)), (2.0, 2.0));
            assert_eq!((max_f32(nan, 2.0), max_f32(2.0, nan)), (2.0, 2.0));
            assert_eq!(min_f32(nan, nan).to_bits(), 0x7fff_ffff);
            assert_eq!(min_nan_f32(2.0, nan).to_bits(), 0x7fff_ffff);
            assert_eq!(max_nan_f32(nan, 2.0).to_bits(), 0x7fff_ffff);
        }
    }

    #[test]
    fn order_is_that_of_numbers() {
        let values = [
            f64::NEG_INFINITY,
            -2.0,
            -1e-310,
            0.0,
            1e-310,
            1.0,
            f64::INFINITY,
        ];
        for (i, &a) in values.iter().enumerate() {
            for (j, &b) in values.iter().enumerate() {
                assert_eq!(min_f64(a, b), values[i.min(j)]);
                assert_eq!(max_f64(a, b), values[i.max(j)]);
            }
        }
    }

    #[test]
    fn signs() {
        assert_eq!(min_xorsign_f32(-3.0, 2.0, false), -2.0);
        assert_eq!(max_xorsign_f32(-3.0, -2.0, false), 3.0);
        assert_eq!(min_xorsign_f32(-0.0, 1.0, false).to_bits(), 0x8000_0000);
        assert_eq!(max_xorsign_f32(NAN_F32, -2.0, false), -2.0);
        assert!(max_xorsign_f32(NAN_F32, -2.0, true).is_nan());
    }

    #[test]
    fn classes() {
        assert!(testp_f32(Property::Normal, -0.0));
        assert!(!testp_f32(Property::Normal, 1e-40));
        assert!(testp_f32(Property::Subnormal, 1e-40));
        assert!(testp_f64(Property::NotANumber, f64::NAN));
        assert!(testp_f64(Property::Infinite, f64::NEG_INFINITY));
        assert!(!testp_f64(Property::Finite, f64::NAN));
    }
}
