//! A gate that queues pass before they give the driver work, so that the back end's own work has
//! its turn.
//!
//! A GPU goes from one stream of a context to the next only when the first has run empty. On an
//! H200, a stream that was kept supplied with small fills starved the scrubbing of fresh memory for
//! as long as that went on, whatever the priorities of the two. So scrubbing, or the fill of a
//! fresh array, closes the gate until it is done if it has waited for too long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a submission is held up. The gate must open in the end, because a kernel that
/// fills the GPU may wait for that submission. With one submission in so long a time, the GPU runs
/// empty in between, which gives the scrubbing its turn.
const HELD_MAX: Duration = Duration::from_millis(10);
/// How long a submission sleeps between two looks at the gate.
const SLEEP: Duration = Duration::from_micros(50);

/// Holds up submissions of all queues while at least one thread keeps it closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicUsize,
}

/// Keeps a gate closed until dropped.
pub(crate) struct ClosedGate<'a>(&'a Gate);

impl Gate {
    /// Returns at once if the gate is open, and otherwise when it opens or after [`HELD_MAX`].
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

    /// Closes the gate until the returned guard is dropped.
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
