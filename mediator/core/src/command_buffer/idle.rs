//! What a consumer does when its ring is empty: spin for a while, then sleep.
//!
//! Spinning helps only as long as this thread has its processor. Where others want the processor
//! too, the guest that is about to write the next packet may have it, or a stranger, and what the
//! guest writes is found when the scheduler comes back to this thread: up to a slice later, some
//! milliseconds. There, a consumer sleeps at once and the guest rings the doorbell: an exit that
//! the kernel handles, after which the scheduler runs this thread at once, because its slice is the
//! shortest that there is.

use std::time::{Duration, Instant};

use causeway_protocol::ring::{Positions, prepare_sleep};

use super::ring::Ring;
use crate::backend::{Fault, Progress};
use crate::bell::Bell;
use crate::statistics::Counters;

/// Shortest and longest spin. Sleeping and being rung for costs the guest an exit; spinning costs
/// the host CPU.
const SPIN_MIN: Duration = Duration::from_micros(20);
const SPIN_MAX: Duration = Duration::from_micros(2500);
/// Time without the processor that makes a spin one on a crowded processor. An interrupt handler
/// takes less, and another thread's slice more.
const CROWDED: Duration = Duration::from_micros(100);
/// Waits without a spin after a spin on a crowded processor, and the most after several.
const REST_MIN: u32 = 16;
const REST_MAX: u32 = 4096;
/// Sleep between two looks at work under way.
const BUSY_SLEEP: Duration = Duration::from_millis(1);
/// Looks at the ring between two looks at the clock.
const LOOKS: u32 = 64;

/// How long to spin, learned (the idea is that of KVM's halt polling): work that came while
/// spinning, or soon after, makes the next spin longer; a long sleep makes it shorter.
pub(super) struct Idle {
    budget: Duration,
    crowd: Crowd,
}

/// Whether others want this thread's processor, as the last spins have shown.
#[derive(Default)]
struct Crowd {
    /// Waits left that do not spin.
    rest: u32,
    /// Waits without a spin after the last spin on a crowded processor; zero if it was on a free
    /// one.
    last_rest: u32,
    /// The last spin was on a crowded processor.
    seen: bool,
}

impl Idle {
    pub fn new() -> Self {
        Self {
            budget: SPIN_MIN,
            crowd: Crowd::default(),
        }
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
        let spun = self.spin(found, &mut progress);
        if std::mem::take(&mut self.crowd.seen) {
            Counters::add(&counters.counted.crowded_waits);
        }
        if spun? {
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

    /// Looks until `found`, or the budget is spent, or others want the processor. Returns whether
    /// it has found something. Polls work under way only after the shortest spin, so that a packet
    /// which comes at once waits for no driver.
    fn spin(
        &mut self,
        found: impl Fn() -> bool,
        progress: &mut impl FnMut() -> Result<Progress, Fault>,
    ) -> Result<bool, Fault> {
        if self.crowd.rests() {
            return Ok(found());
        }
        let begun = Instant::now();
        let mut elapsed = Duration::ZERO;
        let mut found_soon = false;
        while !found_soon && elapsed < SPIN_MIN {
            found_soon = look(&found);
            elapsed = begun.elapsed();
        }
        // A spin that takes longer than its limit was without the processor.
        let crowded = self.crowd.learn(elapsed.saturating_sub(SPIN_MIN));
        if found_soon || crowded || self.budget <= SPIN_MIN {
            return Ok(found_soon);
        }
        self.spin_on(&found, progress)
    }

    /// Goes on with a spin, and looks at the processor time.
    fn spin_on(
        &mut self,
        found: impl Fn() -> bool,
        progress: &mut impl FnMut() -> Result<Progress, Fault>,
    ) -> Result<bool, Fault> {
        let (begun, cpu_begun) = (Instant::now(), thread_cpu_time());
        let mut busy = true;
        loop {
            // Shows at once whether another thread wants the processor.
            std::thread::yield_now();
            let is_found = look(&found);
            busy = busy && !is_found && progress()? == Progress::Busy;
            let cpu = thread_cpu_time().saturating_sub(cpu_begun);
            let crowded = self.crowd.learn(begun.elapsed().saturating_sub(cpu));
            let spent = cpu >= self.budget - SPIN_MIN;
            if !crowded && (is_found || spent) {
                self.crowd.forget();
            }
            if is_found || crowded || spent {
                return Ok(is_found);
            }
        }
    }
}

impl Crowd {
    /// Returns whether this wait is to sleep without a spin.
    fn rests(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        rests
    }

    /// Learns from a spin that was without the processor for `absent` so far. Returns whether
    /// others want the processor.
    fn learn(&mut self, absent: Duration) -> bool {
        let crowded = absent >= CROWDED;
        if crowded {
            self.seen = true;
            self.last_rest = (self.last_rest * 2).clamp(REST_MIN, REST_MAX);
            self.rest = self.last_rest;
        }
        crowded
    }

    /// Learns that a spin has had the processor to its end.
    fn forget(&mut self) {
        self.last_rest /= 2;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_without_spin(crowd: &mut Crowd) -> usize {
        std::iter::from_fn(|| crowd.rests().then_some(())).count()
    }

    #[test]
    fn a_crowded_processor_is_left_alone_for_longer_each_time() {
        let mut crowd = Crowd::default();
        assert!(!crowd.learn(CROWDED / 2));
        assert_eq!(waits_without_spin(&mut crowd), 0);
        for rest in [16, 32, 64] {
            assert!(crowd.learn(CROWDED));
            assert_eq!(waits_without_spin(&mut crowd), rest);
        }
        for _ in 0..20 {
            assert!(crowd.learn(Duration::from_millis(4)));
        }
        assert_eq!(waits_without_spin(&mut crowd), REST_MAX as usize);
    }

    #[test]
    fn spins_on_a_free_processor_make_the_next_rest_shorter() {
        let mut crowd = Crowd::default();
        for _ in 0..4 {
            crowd.learn(CROWDED);
        }
        assert_eq!(waits_without_spin(&mut crowd), 128);
        crowd.forget();
        crowd.forget();
        crowd.learn(CROWDED);
        assert_eq!(waits_without_spin(&mut crowd), 64);
    }
}
