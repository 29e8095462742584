//! A limit on the log lines from each place of the program, because guests, and clients of
//! `causeway serve`, can cause some of them as often as they like.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use log::Record;
use parking_lot::Mutex;

/// Number of lines that one place may log at once: more than a run of many VMs logs on its own.
pub const BURST: u32 = 256;
/// Time after which a place that has logged [`BURST`] lines may log another.
pub const PAUSE: Duration = Duration::from_secs(1);

/// A place of the program that logs: file and line.
type Place = (&'static str, u32);

/// How many lines each place may still log. A leaf lock. It grows with the places of the program
/// and not with what they log.
#[derive(Debug, Default)]
pub struct Limit(Mutex<HashMap<Place, Bucket>>);

#[derive(Debug)]
struct Bucket {
    left: u32,
    /// When `left` was last brought up to date.
    at: Instant,
    left_out: u64,
}

/// What is to become of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is logged.
    Whole,
    /// It is logged, and is the last before the limit.
    Last,
    /// It is logged after this many from the same place that were left out.
    After(u64),
    /// It is left out.
    LeftOut,
}

impl Limit {
    /// Returns what is to become of `record`, logged at `now`.
    pub fn admit(&self, record: &Record<'_>, now: Instant) -> Admission {
        let place = (
            record.file_static().unwrap_or_default(),
            record.line().unwrap_or_default(),
        );
        let mut places = self.0.lock();
        let bucket = places.entry(place).or_insert(Bucket {
            left: BURST,
            at: now,
            left_out: 0,
        });
        bucket.admit(now)
    }
}

impl Bucket {
    fn admit(&mut self, now: Instant) -> Admission {
        self.refill(now);
        if self.left == 0 {
            self.left_out += 1;
            return Admission::LeftOut;
        }
        self.left -= 1;
        match (std::mem::take(&mut self.left_out), self.left) {
            (0, 0) => Admission::Last,
            (0, _) => Admission::Whole,
            (left_out, _) => Admission::After(left_out),
        }
    }

    fn refill(&mut self, now: Instant) {
        let pauses = now.saturating_duration_since(self.at).as_nanos() / PAUSE.as_nanos();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(pauses).min(BURST);
        // What is left of a pause counts for the next line.
        self.at += PAUSE.saturating_mul(pauses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Admission::{After, Last, LeftOut, Whole};

    fn admit(limit: &Limit, line: u32, now: Instant) -> Admission {
        let mut record = Record::builder();
        let record = record.file_static(Some("place.rs")).line(Some(line));
        limit.admit(&record.build(), now)
    }

    #[test]
    fn a_place_logs_a_burst_and_then_a_line_each_second() {
        let limit = Limit::default();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        for _ in 1..BURST {
            assert_eq!(admit(&limit, 1, at(0)), Whole);
        }
        assert_eq!(admit(&limit, 1, at(0)), Last);
        for ms in 0..900 {
            assert_eq!(admit(&limit, 1, at(ms)), LeftOut);
        }
        assert_eq!(admit(&limit, 2, at(900)), Whole, "another place");
        assert_eq!(admit(&limit, 1, at(1500)), After(900));
        assert_eq!(admit(&limit, 1, at(1900)), LeftOut);
        assert_eq!(admit(&limit, 1, at(2000)), After(1), "halves add up");
    }

    #[test]
    fn a_place_that_was_quiet_logs_a_burst_again_and_no_more() {
        let limit = Limit::default();
        let begun = Instant::now();
        admit(&limit, 1, begun);
        let later = begun + 10_000 * PAUSE;
        let logged = (0..1000).filter(|_| admit(&limit, 1, later) != LeftOut);
        assert_eq!(logged.count(), BURST as usize);
    }
}
