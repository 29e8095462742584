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

/// The largest period: of 64 copies of about one size, at least one is timed.
const PERIOD_MAX: u64 = 64;

/// Returns the number of copies of `bytes` bytes of which one is timed. The two events then take
/// about a hundredth of the time of all, and more where [`PERIOD_MAX`] is the limit.
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
    /// Bytes of copies behind the last one that is timed. The GPU may not have done them.
    untimed_bytes: u64,
}

struct Timed {
    events: [Event; 2],
    way: Way,
    bytes: u64,
    /// Bytes of the copies of about its size since the timed one before it.
    untimed_before: u64,
}

impl Rate {
    /// Returns whether the next copy is to be timed, given that one in `period` is.
    fn is_due(&mut self, period: u64) -> bool {
        let due = self.untimed_left == 0;
        self.untimed_left = if due { period } else { self.untimed_left } - 1;
        due
    }

    /// Returns what copies of `bytes` bytes in all have moved, as fast as the last timed one.
    fn estimated(&self, bytes: u64) -> Option<Moved> {
        let last = self.last?;
        let ns = u128::from(bytes) * u128::from(last.ns) / u128::from(last.bytes.max(1));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        Some(Moved { bytes, ns })
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
        let untimed_before = std::mem::take(&mut rate.untimed_bytes);
        stream.record(&events[0])?;
        copy()?;
        stream.record(&events[1])?;
        self.under_way.push_back(Timed {
            events,
            way,
            bytes,
            untimed_before,
        });
        Ok(())
    }

    /// Counts the timed copies that the GPU has done, and those before them.
    pub(crate) fn look(&mut self) -> Result<(), CudaError> {
        while let Some(Timed { events, .. }) = self.under_way.front() {
            if !events[1].has_happened()? {
                break;
            }
            let ns = events[1].ns_since(&events[0])?;
            if let Some(timed) = self.under_way.pop_front() {
                let (way, bytes) = (timed.way, timed.bytes);
                let rate = self.sizes.entry(size(way, bytes)).or_default();
                rate.last = Some(Moved { bytes, ns });
                let before = rate.estimated(timed.untimed_before);
                self.crossed.add(way, Moved { bytes, ns });
                self.crossed.add(way, before.unwrap_or_default());
                self.spare.push(timed.events);
            }
        }
        Ok(())
    }

    /// Counts all copies: the GPU has done everything that was put into the stream.
    pub(crate) fn idle(&mut self) -> Result<(), CudaError> {
        self.look()?;
        for ((way, _), rate) in &mut self.sizes {
            let bytes = std::mem::take(&mut rate.untimed_bytes);
            let moved = rate.estimated(bytes);
            self.crossed.add(*way, moved.unwrap_or_default());
        }
        Ok(())
    }

    /// Returns what was counted since the last call.
    pub(crate) fn take(&mut self) -> Crossed {
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
    fn copies_that_are_not_timed_take_as_long_as_the_last_that_was() {
        let mut rate = Rate::default();
        assert!(rate.estimated(3 * MIB).is_none(), "nothing is known yet");
        rate.last = Some(Moved {
            bytes: 2 * MIB,
            ns: 1000,
        });
        let moved = rate.estimated(3 * MIB).unwrap();
        assert_eq!((moved.bytes, moved.ns), (3 * MIB, 1500));
        assert_eq!(rate.estimated(u64::MAX).unwrap().bytes, u64::MAX);
    }
}
