//! Points in time as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 24 * 3600;

/// Formats `time` in UTC with microseconds, as RFC 3339 does: `2026-11-22T09:10:11.000012Z`. A time
/// before 1970 is shown as the beginning of 1970.
pub fn utc_text(time: SystemTime) -> String {
    let since = since_epoch(time);
    format!("{}.{:06}Z", seconds_text(since), since.subsec_micros())
}

/// Formats `time` as [`utc_text`] does, but without a fraction: `2026-11-22T09:10:11Z`.
pub fn utc_second(time: SystemTime) -> String {
    format!("{}Z", seconds_text(since_epoch(time)))
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn seconds_text(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / SECONDS_PER_DAY);
    let of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Returns year, month and day, the latter two from 1, of the day `days` after 1 January 1970 in
/// the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that a leap day is the last day of its year; eras of 400 years have
    // equal lengths. Day 0 is 1 March of the year 0.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS` prints them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (1_798_761_599, "2026-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let time = UNIX_EPOCH + Duration::new(seconds, 12_999);
            assert_eq!(utc_text(time), format!("{text}.000012Z"));
            assert_eq!(utc_second(time), format!("{text}Z"));
        }
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert!(utc_text(before).starts_with("1970-01-01T00:00:00"));
    }

    #[test]
    fn every_day_of_an_era_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..146_097 {
            let (year, month, day) = date(days);
            let follows = match before {
                (same, other, last) if (same, other) == (year, month) => day == last + 1,
                (same, other, _) if same == year => month == other + 1 && day == 1,
                (other, 12, 31) => (year, month, day) == (other + 1, 1, 1),
                _ => false,
            };
            assert!(follows, "{before:?}, then {:?}", (year, month, day));
            before = (year, month, day);
        }
    }
}
