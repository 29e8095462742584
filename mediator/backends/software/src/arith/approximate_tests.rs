//! Error bounds, measured over dense samples against f64, and the manual's tables of special
//! values.

use super::super::sampling::singles;
use super::*;

const TURN: f32 = std::f32::consts::TAU;

/// Numbers from `low` to `high`, evenly spaced.
fn steps(low: f32, high: f32, count: u32) -> impl Iterator<Item = f32> {
    let step = (f64::from(high) - f64::from(low)) / f64::from(count);
    (0..=count).map(move |index| (f64::from(low) + f64::from(index) * step) as f32)
}

/// Every `stride`-th positive finite number.
fn positives(stride: usize) -> impl Iterator<Item = f32> {
    (1..f32::INFINITY.to_bits())
        .step_by(stride)
        .map(f32::from_bits)
}

/// The last place of `value` as an f32.
fn place(value: f64) -> f64 {
    let magnitude = (value.abs() as f32).max(f32::MIN_POSITIVE);
    2f64.powi(((magnitude.to_bits() >> 23).cast_signed() - 127) - 23)
}

fn worst(errors: impl Iterator<Item = f64>) -> f64 {
    errors.fold(0.0, f64::max)
}

#[test]
fn ex2_is_within_two_places() {
    let error = |x: f32| {
        let exact = f64::from(x).exp2();
        (f64::from(ex2(x)) - exact).abs() / place(exact)
    };
    let largest = worst(steps(-152.0, 127.999, 3_000_000).map(error));
    assert!(largest <= 1.2, "{largest}");
    for whole in -149..=127 {
        assert_eq!(f64::from(ex2(whole as f32)), 2f64.powi(whole), "{whole}");
    }
}

#[test]
fn lg2_is_within_its_bounds() {
    let bound = 2f64.powf(-22.0);
    let absolute = |x: f32| (f64::from(lg2(x)) - f64::from(x).log2()).abs();
    let largest = worst(steps(0.5, 2.0, 2_000_000).map(absolute));
    assert!(largest <= bound / 2.0, "{largest:e}");
    let outside = positives(1009).filter(|x| !(0.5..2.0).contains(x));
    let relative = worst(outside.map(|x| absolute(x) / f64::from(x).log2().abs()));
    assert!(relative <= bound / 2.0, "{relative:e}");
}

#[test]
fn sin_and_cos_are_within_their_bounds() {
    let error = |x: f32| {
        let exact = f64::from(x);
        let sine = (f64::from(sin(x)) - exact.sin()).abs();
        sine.max((f64::from(cos(x)) - exact.cos()).abs())
    };
    let largest = worst(steps(-TURN, TURN, 2_000_000).map(error));
    assert!(largest <= 2f64.powf(-23.4), "{largest:e}");
    let largest = worst(steps(-50.0 * TURN, 50.0 * TURN, 2_000_000).map(error));
    assert!(largest <= 2f64.powf(-23.4), "{largest:e}");
    let far = singles(100_000).into_iter().filter(|x| x.is_finite());
    let largest = worst(far.map(error));
    assert!(largest <= 2f64.powf(-23.4), "{largest:e}");
}

#[test]
fn tanh_is_within_its_bound() {
    let error = |x: f32| {
        let exact = f64::from(x).tanh();
        ((f64::from(tanh(x)) - exact) / exact).abs()
    };
    let largest = worst(positives(1009).map(error));
    assert!(largest <= 2f64.powf(-22.4), "{largest:e}");
    assert_eq!(tanh(-0.5), -tanh(0.5));
}

#[test]
fn reciprocal_roots_are_within_their_bound() {
    let error = |x: f32| {
        let exact = 1.0 / f64::from(x).sqrt();
        ((f64::from(rsqrt(x)) - exact) / exact).abs()
    };
    let largest = worst(positives(509).map(error));
    assert!(largest <= 2f64.powf(-23.4), "{largest:e}");
}

/// Operand, then results of ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt, as bits; NaN as any NaN.
#[test]
fn special_values_are_those_of_the_manual() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let table: [(f32, [f32; 8]); 6] = [
        (-inf, [0.0, nan, nan, nan, -1.0, -0.0, nan, nan]),
        (
            -1.0,
            [
                0.5,
                nan,
                -0.841_471,
                0.540_302_3,
                -0.761_594_2,
                -1.0,
                nan,
                nan,
            ],
        ),
        (-0.0, [1.0, -inf, -0.0, 1.0, -0.0, -inf, -inf, -0.0]),
        (0.0, [1.0, -inf, 0.0, 1.0, 0.0, inf, inf, 0.0]),
        (inf, [inf, inf, nan, nan, 1.0, 0.0, 0.0, inf]),
        (nan, [nan; 8]),
    ];
    let operations = [ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt];
    for (operand, results) in table {
        for (index, (operation, wanted)) in operations.iter().zip(results).enumerate() {
            let found = operation(operand);
            let close = (found - wanted).abs() < 1e-6 && wanted.fract() != 0.0;
            let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
            assert!(
                same || close,
                "operation {index} of {operand}: {found}, not {wanted}"
            );
        }
    }
    let least = f32::from_bits(1);
    assert_eq!((tanh(least), sin(-least), ex2(least)), (least, -least, 1.0));
    assert_eq!((ex2(200.0), ex2(-200.0), ex2(128.0)), (inf, 0.0, inf));
}

#[test]
fn divisors_beyond_their_range() {
    assert_eq!(div(1.0, -1.0e38).to_bits(), 0x8000_0000);
    assert!(div(f32::INFINITY, 1.0e38).is_nan());
    assert_eq!(div(1.0, f32::INFINITY), 0.0);
    assert_eq!(div(3.0, 2.0), 1.5);
    assert_eq!(div_full(1.0e38, 2.0e38), 0.5);
}

#[test]
fn gross_approximations_keep_the_upper_half() {
    assert_eq!(rcp_ftz_f64(4.0), 0.25);
    assert_eq!(rcp_ftz_f64(3.0).to_bits() & 0xffff_ffff, 0);
    assert!((rcp_ftz_f64(3.0) * 3.0 - 1.0).abs() < 2f64.powi(-19));
    assert_eq!(rcp_ftz_f64(-1e-310), f64::NEG_INFINITY);
    assert_eq!(rcp_ftz_f64(f64::NAN).to_bits(), 0x7fff_ffff_0000_0000);
    assert_eq!(rsqrt_ftz_f64(16.0), 0.25);
    assert!(rsqrt_ftz_f64(-1.0).is_nan());
    assert_eq!(rsqrt_f64(16.0), 0.25);
}
