//! Operations that were timed one by one: a true percentile, or the reason why there is none.

use std::fmt;

use serde::Serialize;

use crate::figures::time;
use crate::{middle, percentile, sorted};

/// Minimum number of operations. The 99th percentile of fewer would be the slowest operation.
pub const SINGLES_MIN: usize = 100;
/// An operation is timed by itself only if it takes at least this many times as long as its timer
/// adds.
const OVER_TIMER_MIN: f64 = 10.0;

/// Times of single operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Singles {
    /// The operations were timed one by one.
    Timed(SingleTimes),
    /// They were not, or not sensibly.
    NotTimed {
        /// Why not.
        reason: NotTimed,
    },
}

/// Times of single operations, in nanoseconds. Each contains what its timer takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SingleTimes {
    /// Number of operations.
    pub operations: usize,
    /// Median time.
    pub median_ns: f64,
    /// 99th percentile of the times, by the nearest-rank method.
    pub p99_ns: f64,
    /// Longest time.
    pub slowest_ns: f64,
    /// What the timer adds to each time: the median difference of two readings of the clock. Absent
    /// if it was not measured, because the operations take milliseconds.
    pub timer_ns: Option<f64>,
}

/// Why single operations were not timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotTimed {
    /// Operations are iterations of a loop, which take less time than the timer.
    InLoop,
    /// Many operations have one end.
    OfMany,
    /// An operation takes less than ten times as long as the timer.
    TooShort,
    /// Fewer than [`SINGLES_MIN`] operations fit into the time that they may take.
    TooLong,
    /// Fewer than [`SINGLES_MIN`] operations were timed.
    TooFew,
    /// The benchmark ended before.
    NotReached,
}

impl NotTimed {
    /// Returns the reason in at most two words, for a column of a table.
    pub const fn text(self) -> &'static str {
        match self {
            Self::InLoop => "in a loop",
            Self::OfMany => "of many",
            Self::TooShort => "too short",
            Self::TooLong => "too long",
            Self::TooFew => "too few",
            Self::NotReached => "not reached",
        }
    }
}

impl fmt::Display for NotTimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Singles {
    /// Returns what `times_ns` say, each of which contains `timer_ns` for its timer, if that is
    /// known.
    pub fn of(times_ns: &[f64], timer_ns: Option<f64>) -> Self {
        let sorted = sorted(times_ns);
        let figures = middle(&sorted)
            .zip(percentile(&sorted, 99))
            .zip(sorted.last());
        let reason = match figures {
            Some(((median_ns, p99_ns), slowest_ns)) if sorted.len() >= SINGLES_MIN => {
                if median_ns >= OVER_TIMER_MIN * timer_ns.unwrap_or(0.0) {
                    return Self::Timed(SingleTimes {
                        operations: sorted.len(),
                        median_ns,
                        p99_ns,
                        slowest_ns: *slowest_ns,
                        timer_ns,
                    });
                }
                NotTimed::TooShort
            }
            _ => NotTimed::TooFew,
        };
        Self::NotTimed { reason }
    }

    /// Returns the times, if the operations were timed.
    pub fn timed(&self) -> Option<&SingleTimes> {
        match self {
            Self::Timed(times) => Some(times),
            Self::NotTimed { .. } => None,
        }
    }

    /// Returns why the operations were not timed; `None` if they were.
    pub fn reason(&self) -> Option<NotTimed> {
        match self {
            Self::Timed(_) => None,
            Self::NotTimed { reason } => Some(*reason),
        }
    }
}

/// Returns a sentence about what the timers of `singles` add to each time: `the timer adds 9 ns to
/// 20 ns to each`; `None` if nothing was timed.
pub fn timers<'s>(singles: impl IntoIterator<Item = &'s Singles>) -> Option<String> {
    let timed = singles.into_iter().filter_map(Singles::timed);
    let costs: Vec<f64> = timed.filter_map(|times| times.timer_ns).collect();
    let least = costs.iter().copied().reduce(f64::min)?;
    let most = costs.iter().copied().fold(least, f64::max);
    let (least, most) = (time(least), time(most));
    Some(match least == most {
        true => format!("the timer adds {most} to each"),
        false => format!("the timer adds {least} to {most} to each"),
    })
}

impl From<NotTimed> for Singles {
    fn from(reason: NotTimed) -> Self {
        Self::NotTimed { reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_that_of_single_operations() {
        let mut times = vec![100.0; 989];
        times.extend([500.0; 10]);
        times.push(9000.0);
        let singles = Singles::of(&times, Some(10.0));
        let times = singles.timed().unwrap();
        assert_eq!((times.operations, times.median_ns), (1000, 100.0));
        assert_eq!((times.p99_ns, times.slowest_ns), (500.0, 9000.0));
    }

    #[test]
    fn what_timers_add_is_said() {
        let with = |timer| Singles::of(&[1000.0; 100], Some(timer));
        let none = Singles::from(NotTimed::InLoop);
        assert_eq!(timers([&none]), None);
        let said = timers([&with(20.0), &none, &with(9.0)]).unwrap();
        assert_eq!(said, "the timer adds 9.00 ns to 20.0 ns to each");
        assert_eq!(
            timers([&with(9.0)]).unwrap(),
            "the timer adds 9.00 ns to each"
        );
    }

    #[test]
    fn few_operations_and_short_ones_have_no_percentile() {
        let reason = |times: &[f64], timer| Singles::of(times, Some(timer)).reason();
        assert_eq!(reason(&[100.0; 99], 1.0), Some(NotTimed::TooFew));
        assert_eq!(reason(&[], 1.0), Some(NotTimed::TooFew));
        assert_eq!(reason(&[100.0; 100], 10.1), Some(NotTimed::TooShort));
        assert_eq!(reason(&[100.0; 100], 10.0), None);
    }
}
