//! When to look at memory that is slow to read.

/// Most that is waited before the first look, in pauses of the processor: some microseconds.
const PAUSES_MAX: u32 = 64;
/// A pause, in the unit that the wait is kept in.
const PAUSE: u32 = 64;

/// Learns how long to wait before the first poll of memory that is slow to read.
///
/// A load from GPU memory takes about a microsecond, because it crosses the bus, and a processor
/// performs such loads one at a time. A poll that is slightly too early therefore costs one whole
/// load more. Each time the first poll is too early, a pace makes its wait longer by one step; each
/// time it is not, it makes the wait shorter by a 64th of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    wait: u32,
}

impl Pace {
    /// Returns a pace that has learned nothing yet: its wait before the first poll is zero.
    pub const fn new() -> Self {
        Self { wait: 0 }
    }

    /// Waits for the learned time, then calls `look` until it returns `Some`, and returns the value
    /// in it.
    #[inline]
    pub fn look_until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..self.wait / PAUSE {
            core::hint::spin_loop();
        }
        if let Some(found) = look() {
            self.wait = self.wait.saturating_sub(1);
            return found;
        }
        self.wait = (self.wait + PAUSE).min(PAUSES_MAX * PAUSE);
        loop {
            if let Some(found) = look() {
                return found;
            }
        }
    }

    /// Returns how long the pace waits before the first poll, as a number of PAUSE instructions of
    /// the processor.
    pub const fn pauses(&self) -> u32 {
        self.wait / PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks it takes when an answer is there after so many pauses.
    fn looks(pace: &mut Pace, answer_after: u32) -> u32 {
        let mut looks = 0;
        let waited = pace.pauses();
        pace.look_until(|| {
            looks += 1;
            (waited + 10 * (looks - 1) >= answer_after).then_some(())
        });
        looks
    }

    #[test]
    fn one_look_is_enough_once_the_answer_is_known() {
        let mut pace = Pace::new();
        let first: u32 = (0..12).map(|_| looks(&mut pace, 8)).sum();
        assert!(first > 12, "{first} looks");
        let then: u32 = (0..650).map(|_| looks(&mut pace, 8)).sum();
        assert!((650..=661).contains(&then), "{then} looks");
        assert!((7..=9).contains(&pace.pauses()), "{pace:?}");
    }

    #[test]
    fn the_wait_is_bounded_and_shrinks_again() {
        let mut pace = Pace::new();
        for _ in 0..1000 {
            looks(&mut pace, 5000);
        }
        assert_eq!(pace.pauses(), PAUSES_MAX);
        for _ in 0..PAUSES_MAX * PAUSE {
            looks(&mut pace, 0);
        }
        assert_eq!(pace.pauses(), 0);
    }
}
