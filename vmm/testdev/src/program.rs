//! The life of the program that a guest runs, between the marks by which the guest's first process
//! begins and ends it.

use std::time::Instant;

use causeway_testdev_records::Mark;
use causeway_vmm::exit_counts::VmExits;
use parking_lot::Mutex;

use crate::interval::{CountedExits, Interval};
use crate::record::RecordError;

/// Counts the exits of one VM while the program of its guest runs.
#[derive(Debug)]
pub struct ProgramLife {
    exits: VmExits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Awaited,
    Running(Interval),
    Ended(CountedExits),
}

impl ProgramLife {
    /// Returns the life of a program that has not begun. `exits` provides the counts of exits of
    /// the guest's VM.
    pub fn new(exits: VmExits) -> Self {
        Self {
            exits,
            state: Mutex::default(),
        }
    }

    /// Begins the life.
    ///
    /// # Errors
    /// [`RecordError::Order`] if it has begun already.
    pub fn begin(&self) -> Result<(), RecordError> {
        let mut state = self.state.lock();
        match *state {
            State::Awaited => *state = State::Running(Interval::begin(&self.exits)),
            State::Running(_) | State::Ended(_) => return Err(out_of_order(Mark::ProgramBegin)),
        }
        Ok(())
    }

    /// Ends the life, by a mark that the guest made at `now`.
    ///
    /// # Errors
    /// [`RecordError::Order`] if it has not begun or has ended already.
    pub fn end(&self, now: Instant) -> Result<(), RecordError> {
        let mut state = self.state.lock();
        match &*state {
            State::Running(interval) => {
                let counted = interval.end_at_mark(&self.exits, now);
                *state = State::Ended(counted);
                Ok(())
            }
            State::Awaited | State::Ended(_) => Err(out_of_order(Mark::ProgramEnd)),
        }
    }

    /// Returns the exits of the program's life, up to now if the program has not ended; `None` if
    /// the guest has not marked that a program begins.
    pub fn counted(&self) -> Option<CountedExits> {
        match &*self.state.lock() {
            State::Awaited => None,
            State::Running(interval) => Some(interval.until_now(&self.exits)),
            State::Ended(counted) => Some(counted.clone()),
        }
    }
}

fn out_of_order(mark: Mark) -> RecordError {
    RecordError::Order { mark }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::interval::MARKER;
    use causeway_vmm::counters::{ExitCounters, ExitKey};
    use causeway_vmm::statistics::VmStatistics;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const OUTPUT: ExitKey = ExitKey::device("io", "console", "data");

    #[test]
    fn exits_between_the_marks_are_counted_and_those_before_and_after_are_not() {
        let counters = Arc::new(ExitCounters::default());
        let statistics = Arc::<VmStatistics>::default();
        let exits = VmExits::new(statistics, vec![Arc::clone(&counters)]);
        let life = ProgramLife::new(exits);
        assert_eq!(life.counted(), None);
        assert!(life.end(Instant::now()).is_err(), "it has not begun");
        counters.count(OUTPUT);
        life.begin().unwrap();
        counters.count(MARKER);
        assert!(life.begin().is_err(), "it has begun");
        counters.count(OUTPUT);
        counters.count(OUTPUT);
        let two = BTreeMap::from([("io:console:data".to_owned(), 2)]);
        assert_eq!(life.counted().unwrap().vmm_exits, two, "while it runs");
        life.end(Instant::now()).unwrap();
        counters.count(MARKER);
        counters.count(OUTPUT);
        assert_eq!(life.counted().unwrap().vmm_exits, two);
        assert!(life.end(Instant::now()).is_err(), "it has ended");
    }
}
