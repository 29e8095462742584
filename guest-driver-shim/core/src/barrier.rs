//! Points where CPUs or threads meet.

use core::sync::atomic::{AtomicU32, Ordering};

/// A point where CPUs or threads wait for each other. It can be used any number of times. A CPU or
/// thread that waits spins, without exits or system calls.
#[derive(Debug, Default)]
pub struct Barrier {
    arrived: AtomicU32,
    round: AtomicU32,
}

impl Barrier {
    /// Returns a barrier at which no CPU or thread waits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            arrived: AtomicU32::new(0),
            round: AtomicU32::new(0),
        }
    }

    /// Waits until `parties` CPUs or threads, including the caller, wait at this barrier.
    pub fn wait(&self, parties: u32) {
        self.wait_with(parties, || {});
    }

    /// Waits as [`Self::wait`] does, and calls `idle` in each turn of the loop that waits.
    pub fn wait_with(&self, parties: u32, mut idle: impl FnMut()) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == parties {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        while self.round.load(Ordering::Acquire) == round {
            idle();
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn it_holds_everybody_back_each_round() {
        static BARRIER: Barrier = Barrier::new();
        static PASSED: AtomicU32 = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=20 {
                        PASSED.fetch_add(1, Ordering::SeqCst);
                        BARRIER.wait_with(3, thread::yield_now);
                        assert!(PASSED.load(Ordering::SeqCst) >= 3 * round);
                        BARRIER.wait_with(3, thread::yield_now);
                    }
                });
            }
        });
    }
}
