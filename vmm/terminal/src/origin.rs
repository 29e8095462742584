//! Where a report comes from: the command, the build, the time, and the load of the host.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Text in place of what is not known, such as the revision of a build outside a Git repository.
const UNKNOWN: &str = "unknown";
const DAY_S: u64 = 24 * 60 * 60;

static REVISION: OnceLock<&'static str> = OnceLock::new();

/// Sets the revision that the reports of this process name. Only `main` knows it: if a library were
/// compiled with the revision, each commit would compile everything above that library again. Later
/// calls have no effect.
pub fn set_revision(revision: &'static str) {
    let _ = REVISION.set(revision);
}

/// Where a report comes from. Reports have these fields among their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    /// When the command started, in UTC, in the format of RFC 3339: `2026-01-31T23:59:59Z`.
    pub time: String,
    /// Revision of the source code from which this program was built, as `git describe` names it;
    /// it ends with `-modified` if files differed from the revision. `unknown` if there was no
    /// repository.
    pub revision: &'static str,
    /// Arguments of the command, without the program.
    pub command: Vec<String>,
    /// Name of the host.
    pub host_name: String,
    /// Time from the start of the command to its report, in seconds.
    pub duration_s: f64,
    /// Load of the host when the command started.
    pub load_at_start: Option<Load>,
    /// Load of the host when the report was made. The command itself is part of it.
    pub load_at_end: Option<Load>,
    #[serde(skip)]
    begun: Instant,
}

/// Load averages of the host over 1, 5 and 15 minutes: the mean number of threads that ran, waited
/// for a processor, or waited for a disk (proc(5), `/proc/loadavg`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load(pub [f64; 3]);

impl Origin {
    /// Returns the origin of the report of a command that starts now.
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let arguments = std::env::args_os().skip(1);
        let load = Load::now();
        Self {
            time: rfc3339(since_epoch.unwrap_or_default()),
            revision: REVISION.get().copied().unwrap_or(UNKNOWN),
            command: arguments
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            host_name: host_name(),
            duration_s: 0.0,
            load_at_start: load,
            load_at_end: load,
            begun: Instant::now(),
        }
    }

    /// Returns this origin for a report that is made now: with the duration and the load.
    #[must_use]
    pub fn ended(self) -> Self {
        Self {
            duration_s: self.begun.elapsed().as_secs_f64(),
            load_at_end: Load::now(),
            ..self
        }
    }

    /// Returns time, version, revision, duration and load as one line for people. `version` is the
    /// version of this program.
    pub fn line(&self, version: &str) -> String {
        let load = self.load_text();
        format!(
            "{}, causeway {version} ({}), took {:.1} s, load {load}",
            self.time, self.revision, self.duration_s
        )
    }

    /// Returns the load at start and end as text for people: `0.10, then 1.20`, which are averages
    /// over the last minute.
    pub fn load_text(&self) -> String {
        match self.load_at_start.zip(self.load_at_end) {
            Some((Load([before, ..]), Load([after, ..]))) => {
                format!("{before:.2}, then {after:.2}")
            }
            None => String::from("not known"),
        }
    }
}

impl Load {
    /// Reads the load; `None` if `/proc/loadavg` cannot be read.
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/loadavg").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self([next()?, next()?, next()?]))
    }
}

/// Returns the name of the host; `unknown` if the kernel does not tell it.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| UNKNOWN.to_owned(), |name| name.trim().to_owned())
}

/// Returns the time `since_epoch` after 1970-01-01T00:00:00Z as text.
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / DAY_S);
    let (hours, minutes) = (seconds % DAY_S / 3600, seconds / 60 % 60);
    let seconds = seconds % 60;
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// Returns year, month and day of the day `days` days after 1970-01-01 in the Gregorian calendar.
/// Years begin in March, so that leap days are last; an era is the 400 years after which leap years
/// repeat (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>).
const fn date(days: u64) -> (u64, u64, u64) {
    const ERA_DAYS: u64 = 146_097;
    // Days from 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let day = days % ERA_DAYS;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + 400 * (days / ERA_DAYS);
    match month {
        0..10 => (year, month + 3, day),
        _ => (year + 1, month - 9, day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_740_787_200, "2025-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
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

    #[test]
    fn loads_are_the_first_three_numbers() {
        let load = Load::parse("2.63 2.18 1.80 4/113 22042\n");
        assert_eq!(load, Some(Load([2.63, 2.18, 1.8])));
        assert_eq!(Load::parse("2.63 2.18"), None);
        assert_eq!(Load::parse("a b c"), None);
    }

    #[test]
    fn a_report_says_how_long_it_took_and_how_busy_the_host_was() {
        let origin = Origin {
            time: rfc3339(Duration::ZERO),
            revision: "0123456789ab",
            duration_s: 12.34,
            load_at_start: Some(Load([0.1, 0.0, 0.0])),
            load_at_end: Some(Load([1.2, 0.0, 0.0])),
            ..Origin::now()
        };
        assert_eq!(
            origin.line("0.1.0"),
            "1970-01-01T00:00:00Z, causeway 0.1.0 (0123456789ab), took 12.3 s, load 0.10, then 1.20"
        );
        let begun = Origin::now();
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.ended().duration_s >= 0.001);
    }
}
