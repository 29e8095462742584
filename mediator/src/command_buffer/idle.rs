//! What a consumer does when its ring is empty: spin for a while, then sleep.

use std::time::{Duration, Instant};

use causeway_protocol::ring::{Positions, prepare_sleep};

use super::ring::Ring;
use crate::counters::Counters;
use crate::life::Bell;

/// Shortest and longest spin. Sleeping and being rung for costs the guest an exit; spinning costs the host CPU.
const SPIN_MIN: Duration = Duration::from_micros(20);
const SPIN_MAX: Duration = Duration::from_micros(2500);
/// From here on, a spin gives way to other threads that want this CPU, the guest's among them.
const SPIN_POLITELY: Duration = Duration::from_micros(20);
/// Looks at the ring between two looks at the clock.
const LOOKS: u32 = 64;

/// How long to spin, learned: work that came while spinning makes the next spin longer, a sleep makes it shorter.
pub(super) struct Idle {
    budget: Duration,
}

impl Idle {
    pub fn new() -> Self {
        Self { budget: SPIN_MIN }
    }

    /// Returns when there may be something to do at `position`, or a reason to stop.
    pub fn wait(&mut self, ring: &Ring, position: u64, bell: &Bell, counters: &Counters) {
        if self.spin(|| ring.producer() != position || bell.stopped()) {
            self.budget = (self.budget * 2).min(SPIN_MAX);
            return;
        }
        if !prepare_sleep(ring, position) || bell.stopped() {
            return;
        }
        Counters::add(&counters.sleeps);
        bell.sleep();
        if !bell.stopped() {
            Counters::add(&counters.wakeups);
        }
        self.budget = (self.budget / 2).max(SPIN_MIN);
    }

    /// Looks until `found`, or the budget is spent.
    fn spin(&self, found: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if found() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let elapsed = begun.elapsed();
            if elapsed >= self.budget {
                return false;
            }
            if elapsed >= SPIN_POLITELY {
                std::thread::yield_now();
            }
        }
    }
}
