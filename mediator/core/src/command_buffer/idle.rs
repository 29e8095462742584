//! What a consumer does when its ring is empty: spin for a while, then sleep.

use std::time::{Duration, Instant};

use causeway_protocol::ring::{Positions, prepare_sleep};

use super::ring::Ring;
use crate::backend::{Fault, Progress};
use crate::bell::Bell;
use crate::statistics::Counters;

/// Shortest and longest spin, in this thread's CPU time. Sleeping and being rung for costs the
/// guest an exit; spinning costs the host CPU. Where others want the CPU, a spin gets little of it
/// and so goes on for longer: the guest that is about to write the next packet may be one of them.
const SPIN_MIN: Duration = Duration::from_micros(20);
const SPIN_MAX: Duration = Duration::from_micros(2500);
/// Longest spin on the clock on the wall.
const SPIN_WALL_MAX: Duration = Duration::from_millis(50);
/// Sleep between two looks at work under way.
const BUSY_SLEEP: Duration = Duration::from_millis(1);
/// Looks at the ring between two looks at the clock.
const LOOKS: u32 = 64;

/// How long to spin, learned (the idea is that of KVM's halt polling): work that came while
/// spinning, or soon after, makes the next spin longer; a long sleep makes it shorter.
pub(super) struct Idle {
    budget: Duration,
}

impl Idle {
    pub fn new() -> Self {
        Self { budget: SPIN_MIN }
    }

    /// Waits while the ring is empty: spins, then sleeps. Returns when the producer has written a
    /// packet at `position` of the ring, or when `bell` is stopped; it may also return early.
    /// `progress` polls the work already submitted, so that a fault in it ends the wait, and its
    /// end is seen.
    ///
    /// # Errors
    /// The fault that `progress` returned.
    pub fn wait(
        &mut self,
        ring: &Ring,
        position: u64,
        bell: &Bell,
        counters: &Counters,
        mut progress: impl FnMut() -> Result<Progress, Fault>,
    ) -> Result<(), Fault> {
        let found = || ring.producer() != position || bell.stopped();
        if self.spin(found, &mut progress)? {
            self.budget = (self.budget * 2).min(SPIN_MAX);
            return Ok(());
        }
        if !prepare_sleep(ring, position) || bell.stopped() {
            return Ok(());
        }
        Counters::add(&counters.counted.sleeps);
        let begun = Instant::now();
        sleep(bell, &mut progress)?;
        if !bell.stopped() {
            Counters::add(&counters.counted.doorbell_wakeups);
        }
        // A longer spin would have caught what came soon; what came late was not worth spinning
        // for.
        self.budget = if begun.elapsed() < SPIN_MAX {
            (self.budget * 2).min(SPIN_MAX)
        } else {
            (self.budget / 2).max(SPIN_MIN)
        };
        Ok(())
    }

    /// Looks until `found`, or the budget is spent. Polls work under way only after the shortest
    /// spin, so that a packet which comes at once waits for no driver.
    fn spin(
        &self,
        found: impl Fn() -> bool,
        progress: &mut impl FnMut() -> Result<Progress, Fault>,
    ) -> Result<bool, Fault> {
        let begun = Instant::now();
        while begun.elapsed() < SPIN_MIN {
            if look(&found) {
                return Ok(true);
            }
        }
        let left = self.budget - SPIN_MIN;
        let cpu_begun = thread_cpu_time();
        let mut busy = true;
        while !left.is_zero() && begun.elapsed() < SPIN_WALL_MAX {
            if look(&found) {
                return Ok(true);
            }
            busy = busy && progress()? == Progress::Busy;
            if thread_cpu_time().saturating_sub(cpu_begun) >= left {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }
}

/// Sleeps until the doorbell rings. Work under way may still fail, and no doorbell rings for that.
fn sleep(bell: &Bell, progress: &mut impl FnMut() -> Result<Progress, Fault>) -> Result<(), Fault> {
    while progress()? == Progress::Busy {
        if bell.sleep_for(BUSY_SLEEP) {
            return Ok(());
        }
    }
    bell.sleep();
    Ok(())
}

/// Looks some times in a row.
fn look(found: &impl Fn() -> bool) -> bool {
    (0..LOOKS).any(|_| {
        std::hint::spin_loop();
        found()
    })
}

fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
