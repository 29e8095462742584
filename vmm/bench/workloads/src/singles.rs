//! Single operations, which a second pass times one by one. Samples are means of many operations:
//! they say what an operation costs, but not how long the slowest of a hundred takes.

use crate::measurement_plan::Effort;

/// Maximum number of operations of a cell that are timed one by one.
pub const SINGLES_MAX: usize = 1000;
/// Minimum number. The 99th percentile of fewer would be the slowest operation.
pub const SINGLES_MIN: usize = 100;
/// Number of times that the cost of the timer is measured.
const TIMER_TRIES: usize = 101;

/// Whether single operations of a workload can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// Each operation begins and ends by itself.
    ByItself,
    /// Operations are iterations of a loop, such as stores of 8 bytes, which take less time than
    /// their timer.
    InLoop,
    /// Many operations have one end.
    OfMany,
}

/// Returns how much time, in nanoseconds, the single operations of a cell may take together.
#[must_use]
pub const fn budget_ns(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 200_000_000,
        Effort::Full => 2_000_000_000,
    }
}

/// Returns what the timer adds to the time of an operation: the median difference of two readings
/// of the clock `now` with nothing between them, in the clock's unit.
pub fn timer_cost(mut now: impl FnMut() -> u64) -> u64 {
    let mut tries = [0; TIMER_TRIES];
    for cost in &mut tries {
        let begin = now();
        *cost = now().saturating_sub(begin);
    }
    tries.sort_unstable();
    tries[TIMER_TRIES / 2]
}

/// Times single runs of `operation` by the clock `now` into `times`, and returns how many: as many
/// as `times` has room for, fewer if these would take longer than `budget`, or 0 if fewer than
/// [`SINGLES_MIN`] fit into it. The first run decides, and is not counted.
pub fn fill(
    times: &mut [u64],
    budget: u64,
    mut now: impl FnMut() -> u64,
    mut operation: impl FnMut(),
) -> usize {
    let mut once = || {
        let begin = now();
        operation();
        now().saturating_sub(begin)
    };
    let fit = usize::try_from(budget / once().max(1)).unwrap_or(usize::MAX);
    let count = fit.min(times.len());
    if count < SINGLES_MIN {
        return 0;
    }
    times[..count].fill_with(once);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::vec;

    /// How many operations of this length are timed within a budget of 1000.
    fn timed(length: u64) -> (usize, std::vec::Vec<u64>) {
        let clock = Cell::new(0);
        let mut times = vec![0; SINGLES_MAX];
        let operation = || clock.set(clock.get() + length);
        let count = fill(&mut times, 1000, || clock.get(), operation);
        times.truncate(count);
        (count, times)
    }

    #[test]
    fn operations_are_as_many_as_fit_and_none_if_too_few_do() {
        assert_eq!(timed(1), (1000, vec![1; 1000]));
        assert_eq!(timed(0).0, 1000, "shorter than the clock's unit");
        assert_eq!(timed(8), (125, vec![8; 125]));
        assert_eq!(timed(10).0, 100);
        assert_eq!(timed(11).0, 0);
    }

    #[test]
    fn the_cost_of_the_timer_is_its_usual_one() {
        let mut readings = 0;
        let cost = timer_cost(|| {
            readings += 1;
            // One pair of readings was interrupted.
            if readings > 6 {
                7 * readings + 1000
            } else {
                7 * readings
            }
        });
        assert_eq!(cost, 7);
    }
}
