//! Figures for people: short, and of stable width.

/// Formats a rate or another changing figure in at most five characters, such as `0.2`, `12k` or
/// `5.2G`.
pub fn figure(value: f64) -> String {
    match value {
        v if v <= 0.0 => "0".to_owned(),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 9_999.5 => format!("{v:.0}"),
        v if v < 999_500.0 => format!("{:.0}k", v / 1e3),
        v if v < 9.995e6 => format!("{:.2}M", v / 1e6),
        v if v < 9.995e8 => format!("{:.0}M", v / 1e6),
        v if v < 9.995e11 => format!("{:.1}G", v / 1e9),
        _ => "many".to_owned(),
    }
}

/// Formats a number of bytes in the largest unit that fits, such as `1.5 KiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value.max(0.0);
    for unit in UNITS {
        if value < 1023.5 || unit == "TiB" {
            let whole = (value - value.round()).abs() < 0.05 || value >= 99.95 || unit == "B";
            return match whole {
                true => format!("{value:.0} {unit}"),
                false => format!("{value:.1} {unit}"),
            };
        }
        value /= 1024.0;
    }
    String::new()
}

/// Formats a share, where 1 is all, in at most four characters, such as `42%`.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).clamp(0.0, 100.0))
}

/// Formats a time in nanoseconds in at most nine characters, such as `2.65 s`.
pub fn seconds(ns: u64) -> String {
    let value = ns as f64;
    match value {
        0.0 => "0 s".to_owned(),
        v if v < 999.5e3 => format!("{:.0} µs", v / 1e3),
        v if v < 999.5e6 => format!("{:.0} ms", v / 1e6),
        v if v < 99.995e9 => format!("{:.2} s", v / 1e9),
        v => format!("{:.0} s", v / 1e9),
    }
}

/// Formats a part and its whole, both in bytes, such as `64 MiB / 1 GiB`.
pub fn part(used: u64, all: u64) -> String {
    format!("{} / {}", bytes(used as f64), bytes(all as f64))
}

/// Formats a duration in nanoseconds in its two largest units, such as `1 min 01 s`.
pub fn duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Cuts a text to `width` characters, and marks the cut by `…`.
pub fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stay_short() {
        for (value, text) in [
            (0.0, "0"),
            (-1.0, "0"),
            (0.25, "0.2"),
            (9.96, "10"),
            (1234.0, "1234"),
            (12_345.0, "12k"),
            (999_600.0, "1.00M"),
            (12e6, "12M"),
            (5.21e9, "5.2G"),
            (1e15, "many"),
        ] {
            assert_eq!(figure(value), text);
            assert!(figure(value).len() <= 5);
        }
    }

    #[test]
    fn bytes_and_times_are_in_the_unit_that_fits() {
        for (value, text) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1024.0, "1 KiB"),
            (1536.0, "1.5 KiB"),
            (1023.9 * 1024.0, "1 MiB"),
            (64.0 * 1024.0 * 1024.0 * 1024.0, "64 GiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (ns, text) in [
            (0, "0 s"),
            (999, "1 µs"),
            (420_000_000, "420 ms"),
            (2_650_000_000, "2.65 s"),
            (100_000_000_000, "100 s"),
        ] {
            assert_eq!(seconds(ns), text);
        }
        assert_eq!((percent(0.42), percent(1.7)), ("42%".into(), "100%".into()));
        assert_eq!(part(64 << 20, 64 << 30), "64 MiB / 64 GiB");
        assert_eq!(duration(59_999_999_999), "59 s");
        assert_eq!(duration(61_000_000_000), "1 min 01 s");
        assert_eq!(duration(90_061_000_000_000), "1 d 1 h");
        assert_eq!(fit("mmio:registers", 14), "mmio:registers");
        assert_eq!(fit("mmio:registers", 5), "mmio…");
    }
}
