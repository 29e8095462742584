//! Where a report comes from: the command, the build, the time, and the load of the host.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use crate::time::utc_second;

/// Text in place of what is not known, such as the revision of a build outside a Git repository.
const UNKNOWN: &str = "unknown";

static REVISION: OnceLock<&'static str> = OnceLock::new();

/// Sets the revision that the reports of this process name. Only `main` knows it: if a library were
/// compiled with the revision, each commit would compile everything above that library again. Later
/// calls have no effect.
pub fn set_revision(revision: &'static str) {
    let _ = REVISION.set(revision);
}

/// Where a report comes from. Reports have these fields among their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Load(pub [f64; 3]);

impl Origin {
    /// Returns the origin of the report of a command that starts now.
    pub fn now() -> Self {
        let arguments = std::env::args_os().skip(1);
        let load = Load::now();
        Self {
            time: utc_second(SystemTime::now()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

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
            time: utc_second(UNIX_EPOCH),
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
