//! How fast a session's control messages are executed.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Messages of so much time may come at once.
const BURST: Duration = Duration::from_millis(100);

/// Spreads messages so that no more than so many are executed each second. A leaf lock.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// Counts a message that came at `now`, with a limit of `per_second` messages. Returns when it
    /// is to be executed: not before `now`.
    pub fn next(&self, per_second: u64, now: Instant) -> Instant {
        let interval =
            Duration::from_secs(1) / u32::try_from(per_second.max(1)).unwrap_or(u32::MAX);
        let mut free = self.0.lock();
        // Time without messages is kept for a burst, and no more.
        let saved = now.checked_sub(BURST).unwrap_or(now);
        let begin = free.map_or(saved, |free| free.max(saved));
        *free = Some(begin + interval);
        begin.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_beyond_the_limit_wait_and_a_rest_allows_a_burst() {
        let pace = Pace::default();
        let begun = Instant::now() + Duration::from_secs(10);
        let waits = |at_ms| {
            let now = begun + Duration::from_millis(at_ms);
            (pace.next(100, now) - now).as_millis()
        };
        // A tenth of a second's worth at once.
        for _ in 0..11 {
            assert_eq!(waits(0), 0);
        }
        assert_eq!((waits(0), waits(0)), (10, 20));
        assert_eq!(waits(30), 0, "they came in the meantime");
        assert_eq!(waits(35), 5);
        for _ in 0..11 {
            assert_eq!(waits(60_000), 0, "a long rest is one burst");
        }
        assert_eq!(waits(60_000), 10);
    }

    #[test]
    fn a_limit_of_nothing_or_of_very_much_is_a_number() {
        let now = Instant::now() + Duration::from_secs(10);
        let pace = Pace::default();
        assert_eq!(pace.next(u64::MAX, now), now);
        pace.next(0, now);
        assert!(pace.next(0, now) > now);
    }
}
