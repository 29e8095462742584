//! Minimum, maximum, signs and classes of floats.

/// The canonical NaN of `.f32`.
pub const NAN_F32: f32 = f32::from_bits(0x7fff_ffff);
/// The canonical NaN of `.f64`.
pub const NAN_F64: f64 = f64::from_bits(0x7fff_ffff_ffff_ffff);

/// What `testp` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// Neither infinite nor NaN.
    Finite,
    /// Positive or negative infinity.
    Infinite,
    /// Not NaN.
    Number,
    /// NaN.
    NotANumber,
    /// Zero, or a number of full precision.
    Normal,
    /// A number of less than full precision.
    Subnormal,
}

impl Property {
    /// The property that a modifier of `testp` names.
    pub fn from_modifier(name: &str) -> Option<Self> {
        Some(match name {
            "finite" => Self::Finite,
            "infinite" => Self::Infinite,
            "number" => Self::Number,
            "notanumber" => Self::NotANumber,
            "normal" => Self::Normal,
            "subnormal" => Self::Subnormal,
            _ => return None,
        })
    }
}

/// The functions of one float type: PTX orders -0 below +0, and lets numbers win over NaN unless `.NaN` is given.
macro_rules! comparisons {
    ($float:ty, $nan:ident, $min:ident, $max:ident, $min_nan:ident, $max_nan:ident, $min_xorsign:ident,
     $max_xorsign:ident, $copysign:ident, $testp:ident) => {
        /// `min`; a NaN gives way to a number.
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

        /// `max`; a NaN gives way to a number.
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

        /// `min.NaN`; the canonical NaN if either is one.
        #[inline]
        pub fn $min_nan(a: $float, b: $float) -> $float {
            if a.is_nan() || b.is_nan() {
                $nan
            } else {
                $min(a, b)
            }
        }

        /// `max.NaN`; the canonical NaN if either is one.
        #[inline]
        pub fn $max_nan(a: $float, b: $float) -> $float {
            if a.is_nan() || b.is_nan() {
                $nan
            } else {
                $max(a, b)
            }
        }

        /// `min.xorsign.abs`: the lesser magnitude, with the signs' exclusive or; `.NaN` if `nan`.
        #[inline]
        pub fn $min_xorsign(a: $float, b: $float, nan: bool) -> $float {
            let magnitude = if nan {
                $min_nan(a.abs(), b.abs())
            } else {
                $min(a.abs(), b.abs())
            };
            if magnitude.is_nan() {
                magnitude
            } else {
                magnitude.copysign(a) * (1.0 as $float).copysign(b)
            }
        }

        /// `max.xorsign.abs`: the greater magnitude, with the signs' exclusive or; `.NaN` if `nan`.
        #[inline]
        pub fn $max_xorsign(a: $float, b: $float, nan: bool) -> $float {
            let magnitude = if nan {
                $max_nan(a.abs(), b.abs())
            } else {
                $max(a.abs(), b.abs())
            };
            if magnitude.is_nan() {
                magnitude
            } else {
                magnitude.copysign(a) * (1.0 as $float).copysign(b)
            }
        }

        /// `copysign`: `b` with the sign of `a`, in PTX's order of operands.
        #[inline]
        pub fn $copysign(a: $float, b: $float) -> $float {
            b.copysign(a)
        }

        /// `testp`
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

comparisons!(
    f32,
    NAN_F32,
    min_f32,
    max_f32,
    min_nan_f32,
    max_nan_f32,
    min_xorsign_f32,
    max_xorsign_f32,
    copysign_f32,
    testp_f32
);
comparisons!(
    f64,
    NAN_F64,
    min_f64,
    max_f64,
    min_nan_f64,
    max_nan_f64,
    min_xorsign_f64,
    max_xorsign_f64,
    copysign_f64,
    testp_f64
);

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
        assert_eq!(copysign_f32(-1.0, 5.0), -5.0);
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
