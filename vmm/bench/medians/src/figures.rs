//! Figures as tables show them: short, and with their units.

use crate::Ratio;

/// Returns the text that tables show where there is no figure: `-`.
pub fn dash() -> String {
    String::from("-")
}

/// Formats a value with three significant digits, and with the suffix `k`, `M` or `G` from a
/// thousand on: `336k`.
pub fn short(value: f64) -> String {
    // What rounding makes a thousand of is one.
    let scales = [(999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k")];
    for (from, scale, letter) in scales {
        if value >= from {
            return format!("{}{letter}", digits(value / scale));
        }
    }
    digits(value)
}

/// Three significant digits of a number below a thousand.
fn digits(value: f64) -> String {
    match value {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n if n >= 0.9995 => format!("{n:.2}"),
        n if n >= 0.0995 => format!("{n:.3}"),
        n if n >= 0.000_999_5 => format!("{n:.*}", 2 + decimals(n)),
        0.0 => String::from("0"),
        n => format!("{n:.1e}"),
    }
}

/// The first decimal of a number below one that is not zero.
fn decimals(value: f64) -> usize {
    let first = -(value * 1.0005).log10().floor();
    first.clamp(0.0, 9.0) as usize
}

/// Formats a ratio with its confidence interval, if it has one: `2.50 (2.10-3.00)`.
pub fn ratio(ratio: Ratio) -> String {
    let median = short(ratio.median);
    match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("{median} {}", range(low, high)),
        None => median,
    }
}

/// An interval. Where only its upper end has thousands they are written out, for a letter would be
/// read as that of both.
fn range(low: f64, high: f64) -> String {
    match low < 999.5 && high >= 999.5 {
        true => format!("({}-{high:.0})", short(low)),
        false => format!("({}-{})", short(low), short(high)),
    }
}

/// Formats the time `ns` (nanoseconds) with three significant digits, in ns, µs, ms or s depending
/// on its length: `53.0 µs`.
pub fn time(ns: f64) -> String {
    let (scale, unit) = unit_of(ns);
    format!("{} {unit}", digits(ns / scale))
}

/// Formats the time `ns` and the ends of its confidence interval `interval` (all in nanoseconds) in
/// one unit: `1.50 µs (1.40-1.60)`. With `None`, formats the time alone.
pub fn time_within(ns: f64, interval: Option<(f64, f64)>) -> String {
    let (scale, unit) = unit_of(ns);
    match interval {
        Some((low, high)) => {
            let range = range(low / scale, high / scale);
            format!("{} {unit} {range}", digits(ns / scale))
        }
        None => time(ns),
    }
}

fn unit_of(ns: f64) -> (f64, &'static str) {
    match ns {
        n if n < 999.5 => (1.0, "ns"),
        n if n < 999.5e3 => (1e3, "µs"),
        n if n < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Formats a number of exits per operation. Fractions below 0.01 are written with an exponent, so
/// that they do not look like zero.
pub fn count(exits: f64) -> String {
    match exits {
        n if n.fract() == 0.0 => format!("{n:.0}"),
        n if n < 0.01 => format!("{n:.1e}"),
        n if n < 100.0 => format!("{n:.2}"),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_whatever_their_size() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_055, "5.5e-5"),
            (0.005_556, "0.00556"),
            (0.0234, "0.0234"),
            (0.994_6, "0.995"),
            (0.999_7, "1.00"),
            (21.64, "21.6"),
            (99.97, "100"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (336_420.0, "336k"),
            (1_234_567.0, "1.23M"),
        ] {
            assert_eq!(short(value), text, "{value}");
        }
    }

    #[test]
    fn times_and_their_intervals_have_one_unit() {
        assert_eq!(time(52_970.0), "53.0 µs");
        assert_eq!(time(999_700.0), "1.00 ms");
        assert_eq!(time(3.2e9), "3.20 s");
        let within = time_within(980.0, Some((950.0, 1200.0)));
        assert_eq!(within, "980 ns (950-1200)");
        assert_eq!(time_within(980.0, None), "980 ns");
    }

    #[test]
    fn few_exits_do_not_look_like_none() {
        for (exits, text) in [(0.0, "0"), (8.0, "8"), (7.3e-4, "7.3e-4"), (0.713, "0.71")] {
            assert_eq!(count(exits), text);
        }
    }

    #[test]
    fn ratios_have_their_interval_if_there_is_one() {
        let mut known = Ratio {
            median: 65_798.2,
            low: Some(48_011.0),
            high: Some(100_283.0),
        };
        assert_eq!(ratio(known), "65.8k (48.0k-100k)");
        known.low = Some(1.57);
        assert_eq!(ratio(known), "65.8k (1.57-100283)");
        (known.low, known.high) = (None, None);
        assert_eq!(ratio(known), "65.8k");
    }
}
