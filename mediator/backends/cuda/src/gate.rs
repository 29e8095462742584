//! What queues pass before they give the driver work, so that the back end's own work has its turn.
//!
//! A GPU goes from one stream of a context to the next only when the first has run empty. On an
//! H200, a stream that was kept supplied with small fills starved the scrubbing of fresh memory for
//! as long as that went on, whatever the priorities of the two. So who has waited for too long
//! closes the gate until it has had its turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest that a submission is held up. The work waited for may itself wait for that submission,
/// by way of a kernel that fills the GPU, and one submission in so long leaves the GPU empty in
/// between.
const HELD_MAX: Duration = Duration::from_millis(10);
/// How long a submission sleeps between two looks.
const SLEEP: Duration = Duration::from_micros(50);

/// Open, or closed by any number of threads.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicUsize,
}

/// Keeps a gate closed until dropped.
pub(crate) struct ClosedGate<'a>(&'a Gate);

impl Gate {
    /// Goes through, at once unless it is closed.
    #[inline]
    pub(crate) fn pass(&self) {
        if self.is_closed() {
            self.queue_up();
        }
    }

    #[cold]
    fn queue_up(&self) {
        let begun = Instant::now();
        while self.is_closed() && begun.elapsed() < HELD_MAX {
            std::thread::sleep(SLEEP);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Closes it.
    pub(crate) fn close(&self) -> ClosedGate<'_> {
        self.closed.fetch_add(1, Ordering::Relaxed);
        ClosedGate(self)
    }
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_up_while_it_is_closed_but_not_for_ever() {
        let gate = Gate::default();
        gate.pass();
        let (first, second) = (gate.close(), gate.close());
        drop(first);
        let begun = Instant::now();
        gate.pass();
        assert!(begun.elapsed() >= HELD_MAX);
        drop(second);
        assert!(!gate.is_closed());
    }
}
