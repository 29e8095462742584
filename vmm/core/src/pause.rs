//! Pauses of a VM: its virtual CPUs stand still until somebody resumes them.
//!
//! The request is a flag at which each virtual CPU looks before it runs. A kick makes those look
//! that run guest code ([`crate::kick`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Whether the virtual CPUs of a VM are to stand still, and which do. All threads of the VM share
/// this state.
#[derive(Debug, Default)]
pub struct Pause {
    is_wanted: AtomicBool,
    history: Mutex<History>,
    changed: Condvar,
}

/// Whether a VM runs, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// No virtual CPU has run yet.
    Starting,
    /// The VM runs.
    Running,
    /// A pause was asked for, and not all virtual CPUs stand still.
    Pausing,
    /// All virtual CPUs stand still.
    Paused,
    /// The VM has ended.
    Ended,
}

/// What the lock protects.
#[derive(Debug, Default)]
struct History {
    /// Virtual CPUs that stand still.
    still: usize,
    /// When the present pause was asked for.
    since: Option<Instant>,
    /// The pauses before that.
    past: Pauses,
    is_closed: bool,
}

/// The pauses in a VM's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// How often somebody asked for a pause of a VM that was not paused.
    pub count: u64,
    /// Their duration in all, each from the request to pause to the request to resume.
    pub duration: Duration,
    /// Whether the VM was paused when it ended.
    pub at_end: bool,
}

impl Pause {
    /// Asks the virtual CPUs to stand still. They notice only after the caller has kicked their
    /// threads. Does nothing if they have been asked already, or after [`Self::close`].
    pub fn begin(&self) {
        let mut history = self.history.lock();
        if history.is_closed || history.since.is_some() {
            return;
        }
        history.since = Some(Instant::now());
        history.past.count += 1;
        self.is_wanted.store(true, Ordering::Release);
    }

    /// Lets the virtual CPUs go on.
    pub fn end(&self) {
        self.end_in(&mut self.history.lock());
    }

    /// Lets the virtual CPUs go on, and makes later calls of [`Self::begin`] do nothing: those who
    /// wait for the end of the VM would wait for ever.
    pub fn close(&self) {
        let mut history = self.history.lock();
        history.past.at_end |= history.since.is_some();
        history.is_closed = true;
        self.end_in(&mut history);
    }

    fn end_in(&self, history: &mut History) {
        if let Some(since) = history.since.take() {
            history.past.duration += since.elapsed();
        }
        self.is_wanted.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Returns whether the virtual CPUs are to stand still.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Waits until the virtual CPUs may go on. The thread of a virtual CPU calls this function.
    pub fn stand_still(&self) {
        let mut history = self.history.lock();
        history.still += 1;
        while history.since.is_some() {
            self.changed.wait(&mut history);
        }
        history.still -= 1;
    }

    /// Returns how many virtual CPUs stand still.
    pub fn still(&self) -> usize {
        self.history.lock().still
    }

    /// Returns the pauses until now, the present one included.
    pub fn until_now(&self) -> Pauses {
        let history = self.history.lock();
        let present = history.since.map(|since| since.elapsed());
        Pauses {
            duration: history.past.duration + present.unwrap_or_default(),
            ..history.past
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};

    /// Starts a thread that stands still, and waits until it does.
    fn standing(pause: &Arc<Pause>) -> JoinHandle<()> {
        let (before, own) = (pause.still(), Arc::clone(pause));
        let thread = thread::spawn(move || own.stand_still());
        while pause.still() == before {
            thread::yield_now();
        }
        thread
    }

    #[test]
    fn who_stands_still_goes_on_when_the_pause_ends() {
        let pause = Arc::new(Pause::default());
        pause.stand_still();
        pause.begin();
        assert!(pause.is_wanted());
        let threads = [standing(&pause), standing(&pause)];
        assert_eq!(pause.still(), 2);
        pause.end();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!pause.is_wanted() && pause.still() == 0);
    }

    #[test]
    fn a_pause_counts_once_however_often_it_is_asked_for() {
        let pause = Pause::default();
        pause.end();
        assert_eq!(pause.until_now(), Pauses::default());
        pause.begin();
        pause.begin();
        thread::sleep(Duration::from_millis(2));
        let present = pause.until_now();
        assert!(present.count == 1 && present.duration >= Duration::from_millis(2));
        pause.end();
        let past = pause.until_now();
        assert!(past.duration >= present.duration && !past.at_end);
        assert_eq!(pause.until_now(), past);
        pause.begin();
        assert_eq!(pause.until_now().count, 2);
    }

    #[test]
    fn nothing_is_paused_that_is_to_end() {
        let pause = Arc::new(Pause::default());
        pause.begin();
        let thread = standing(&pause);
        pause.close();
        thread.join().unwrap();
        assert!(pause.until_now().at_end);
        pause.begin();
        assert!(!pause.is_wanted());
        pause.stand_still();
        assert_eq!(pause.until_now().count, 1);
        let other = Pause::default();
        other.close();
        assert!(!other.until_now().at_end);
    }
}
