//! Conversions to 8-bit formats against a search of the nearest code, for every f16 value.

use super::*;

/// The number that a code stands for, from its fields (PTX ISA, "Alternate Floating-Point Data
/// Formats"); `None` for infinities and NaN.
fn number(format: Float8, code: u8) -> Option<f64> {
    let (fraction_bits, bias, last) = match format {
        Float8::E4M3 => (3, 7, 0x7e),
        Float8::E5M2 => (2, 15, 0x7b),
    };
    let magnitude = code & 0x7f;
    if magnitude > last {
        return None;
    }
    let field = i32::from(magnitude >> fraction_bits);
    let fraction = f64::from(magnitude & ((1 << fraction_bits) - 1));
    let hidden = if field == 0 {
        0.0
    } else {
        f64::from(1 << fraction_bits)
    };
    let value = (hidden + fraction) * 2f64.powi(field.max(1) - bias - fraction_bits);
    Some(if code & 0x80 == 0 { value } else { -value })
}

/// The code of the same sign whose number is nearest to `value`; of two, the even one.
fn nearest_by_search(format: Float8, value: f64) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let distance = |code: u8| Some(((value.clamp(-1e9, 1e9) - number(format, code)?).abs(), code));
    let codes = (sign..=sign | 0x7f).filter_map(distance);
    let best =
        codes.min_by(|(a, code), (b, other)| a.total_cmp(b).then((code & 1).cmp(&(other & 1))));
    best.expect("some codes are numbers").1
}

#[test]
fn every_number_survives_the_way_to_f16_and_back() {
    for format in Float8::ALL {
        for code in 0..=u8::MAX {
            let half = format.widen(code);
            let Some(number) = number(format, code) else {
                continue;
            };
            let widened = f64::from(Half::F16.widen(half));
            assert_eq!(widened.to_bits(), number.to_bits(), "{format:?} {code:#x}");
            assert_eq!(format.nearest(Half::F16.widen(half)), code, "{format:?}");
        }
    }
}

#[test]
fn codes_that_are_no_numbers_become_infinities_and_the_canonical_nan() {
    let (e4m3, e5m2) = (Float8::E4M3, Float8::E5M2);
    assert_eq!([0x7f, 0xff].map(|code| e4m3.widen(code)), [0x7fff; 2]);
    for code in [0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff] {
        assert_eq!(e5m2.widen(code), 0x7fff, "{code:#x}");
    }
    assert_eq!([0x7c, 0xfc].map(|code| e5m2.widen(code)), [0x7c00, 0xfc00]);
}

#[test]
fn every_f16_value_becomes_the_nearest_number() {
    for format in Float8::ALL {
        for bits in 0..=u16::MAX {
            let value = Half::F16.widen(bits);
            let wanted = nearest_by_search(format, value.into());
            assert_eq!(format.nearest(value), wanted, "{format:?} {value:e}");
        }
    }
}

#[test]
fn f32_values_beside_a_tie_are_rounded_away_from_it() {
    for format in Float8::ALL {
        for code in 0..0x7f {
            let (Some(low), Some(high)) = (number(format, code), number(format, code + 1)) else {
                continue;
            };
            let middle = f64::midpoint(low, high) as f32;
            let even = code + (code & 1);
            assert_eq!(format.nearest(middle), even, "{format:?} {middle:e}");
            assert_eq!(format.nearest(middle.next_down()), code);
            assert_eq!(format.nearest(middle.next_up()), code + 1);
            assert_eq!(format.nearest(-middle), even | 0x80);
        }
    }
}

#[test]
fn numbers_too_large_become_the_largest_and_nan_is_canonical() {
    for (format, largest, code) in [(Float8::E4M3, 448.0, 0x7e), (Float8::E5M2, 57344.0, 0x7b)] {
        for value in [largest, largest * 1.25, 1e10, f32::MAX, f32::INFINITY] {
            assert_eq!(format.nearest(value), code, "{format:?} {value:e}");
            assert_eq!(format.nearest(-value), code | 0x80, "{format:?} -{value:e}");
        }
        assert_eq!(format.nearest(f32::NAN), 0x7f);
        assert_eq!(format.nearest(-f32::NAN), 0x7f);
        assert_eq!(format.nearest(f32::from_bits(1)), 0);
        assert_eq!(format.nearest(-f32::from_bits(1)), 0x80);
    }
}

#[test]
fn pairs_keep_their_order() {
    let format = Float8::E4M3;
    assert_eq!(format.pair(1.0, -2.0), 0x38c0);
    assert_eq!(format.narrow_pair(0x3c00_c000), 0x38c0);
    assert_eq!(format.widen_pair(0x38c0), 0x3c00_c000);
    assert_eq!(rectify_pair(0x38c0), 0x3800);
    assert_eq!(rectify_pair(0x807f), 0x007f);
}
