//! How much copies from one GPU to another have moved, and how long the GPU took for that.
//!
//! A copy that is timed has an event before it and one behind it, which note when they happen.
//! These two hold up a queue by some 7 µs on two H100s. So of short copies only one in
//! [`period`] is timed, and the others count as if they had been as fast as the last timed one of
//! about their size.

use std::collections::{BTreeMap, VecDeque};

use causeway_mediator::backend::{Crossed, Moved, Way};

use crate::driver::{CudaError, Event, Stream};

/// Most copies under way that are timed: the driver takes about a thousand submissions.
const TIMED_MAX: usize = 1024;

/// Most copies of about one size of which one is timed.
const PERIOD_MAX: u64 = 64;

/// Returns of how many copies of `bytes` bytes one is timed: so many that events take about a
/// hundredth of the time of all.
const fn period(way: Way, bytes: u64) -> u64 {
    let always: u64 = match way {
        Way::Direct => 256 << 20,
        Way::Staged => 16 << 20,
    };
    let period = always / if bytes == 0 { 1 } else { bytes };
    match period {
        0 => 1,
        1..PERIOD_MAX => period,
        _ => PERIOD_MAX,
    }
}

/// The copies from one GPU to another of one queue.
#[derive(Default)]
pub(crate) struct Crossings {
    /// Timed copies that the GPU has not been seen to end, the oldest first.
    under_way: VecDeque<Timed>,
    /// Events for further copies.
    spare: Vec<[Event; 2]>,
    sizes: BTreeMap<Size, Rate>,
    crossed: Crossed,
}

/// Copies whose sizes have the same logarithm to the base 2, rounded down.
type Size = (Way, u32);

/// How fast copies of about one size are.
#[derive(Default)]
struct Rate {
    /// The timed copy that ended last.
    last: Option<Moved>,
    /// Copies until the next that is timed.
    untimed_left: u64,
    /// Bytes of copies that were not timed, and do not count yet.
    untimed_bytes: u64,
}

struct Timed {
    events: [Event; 2],
    way: Way,
    bytes: u64,
}

impl Rate {
    /// Returns whether the next copy is to be timed, given that one in `period` is.
    fn is_due(&mut self, period: u64) -> bool {
        let due = self.untimed_left == 0;
        self.untimed_left = if due { period } else { self.untimed_left } - 1;
        due
    }

    /// Returns what copies that were not timed have moved, as fast as the last timed one.
    fn take_untimed(&mut self) -> Option<Moved> {
        let Moved { bytes, ns } = self.last?;
        let untimed = std::mem::take(&mut self.untimed_bytes);
        let ns = u128::from(untimed) * u128::from(ns) / u128::from(bytes.max(1));
        Some(Moved {
            bytes: untimed,
            ns: u64::try_from(ns).unwrap_or(u64::MAX),
        })
    }
}

impl Crossings {
    /// Calls `copy`, which puts a copy of `bytes` bytes into `stream`, and counts it.
    pub(crate) fn measure(
        &mut self,
        stream: &Stream,
        (way, bytes): (Way, u64),
        copy: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let rate = self.sizes.entry(size(way, bytes)).or_default();
        let is_timed = self.under_way.len() < TIMED_MAX && rate.is_due(period(way, bytes));
        if !is_timed {
            copy()?;
            rate.untimed_bytes = rate.untimed_bytes.saturating_add(bytes);
            return Ok(());
        }
        let events = match self.spare.pop() {
            Some(events) => events,
            None => [
                Event::timed(stream.context())?,
                Event::timed(stream.context())?,
            ],
        };
        stream.record(&events[0])?;
        copy()?;
        stream.record(&events[1])?;
        self.under_way.push_back(Timed { events, way, bytes });
        Ok(())
    }

    /// Counts the timed copies that the GPU has done.
    pub(crate) fn look(&mut self) -> Result<(), CudaError> {
        while let Some(Timed { events, .. }) = self.under_way.front() {
            if !events[1].has_happened()? {
                break;
            }
            let ns = events[1].ns_since(&events[0])?;
            if let Some(Timed { events, way, bytes }) = self.under_way.pop_front() {
                let moved = Moved { bytes, ns };
                self.sizes.entry(size(way, bytes)).or_default().last = Some(moved);
                self.crossed.add(way, moved);
                self.spare.push(events);
            }
        }
        Ok(())
    }

    /// Returns what was counted since the last call. Copies that were not timed count once a timed
    /// one of about their size has ended.
    pub(crate) fn take(&mut self) -> Crossed {
        for ((way, _), rate) in &mut self.sizes {
            if let Some(moved) = rate.take_untimed() {
                self.crossed.add(*way, moved);
            }
        }
        std::mem::take(&mut self.crossed)
    }
}

fn size(way: Way, bytes: u64) -> Size {
    (way, bytes.max(1).ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn short_copies_are_timed_now_and_then() {
        for (way, bytes, wanted) in [
            (Way::Direct, 0, 64),
            (Way::Direct, 4096, 64),
            (Way::Direct, 8 * MIB, 32),
            (Way::Direct, 256 * MIB, 1),
            (Way::Direct, u64::MAX, 1),
            (Way::Staged, 4096, 64),
            (Way::Staged, 4 * MIB, 4),
            (Way::Staged, 16 * MIB, 1),
        ] {
            assert_eq!(period(way, bytes), wanted, "{way:?} {bytes}");
        }
        let mut rate = Rate::default();
        let due: Vec<bool> = (0..7).map(|_| rate.is_due(3)).collect();
        assert_eq!(due, [true, false, false, true, false, false, true]);
        assert!((0..3).all(|_| Rate::default().is_due(1)));
    }

    #[test]
    fn copies_that_are_not_timed_count_as_the_last_that_was() {
        let mut rate = Rate {
            untimed_bytes: 3 * MIB,
            ..Rate::default()
        };
        assert!(rate.take_untimed().is_none(), "nothing is known yet");
        rate.last = Some(Moved {
            bytes: 2 * MIB,
            ns: 1000,
        });
        let moved = rate.take_untimed().unwrap();
        assert_eq!((moved.bytes, moved.ns), (3 * MIB, 1500));
        let moved = rate.take_untimed().unwrap();
        assert_eq!((moved.bytes, moved.ns), (0, 0));
    }
}
