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
/// The same while other sessions may wait for the device, which it would leave without work.
const METERED_SLEEP: Duration = Duration::from_micros(50);
/// Looks at the ring between two looks at the clock.
const LOOKS: u32 = 64;

/// What the clocks of a thread show.
#[derive(Clone, Copy, Debug)]
struct Moment {
    wall: Instant,
    /// Processor time of the thread.
    cpu: Duration,
}

/// How long to spin, learned (the idea is that of KVM's halt polling): work that came while
/// spinning, or soon after, makes the next spin longer; a long sleep makes it shorter.
pub(super) struct Idle {
    budget: Duration,
    crowd: Crowd,
    now: fn() -> Moment,
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
            now: Moment::now,
        }
    }

    /// Waits while the ring is empty: spins, then sleeps. Returns when the producer has written a
    /// packet at `position` of the ring, or when `bell` is stopped; it may also return early.
    /// `progress` polls the work already submitted, so that a fault in it ends the wait, and its
    /// end is seen: at once if the session `is_metered`, because others may wait for that.
    ///
    /// # Errors
    /// The fault that `progress` returned.
    pub fn wait(
        &mut self,
        ring: &Ring,
        position: u64,
        bell: &Bell,
        (counters, is_metered): (&Counters, bool),
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
        sleep(bell, is_metered, &mut progress)?;
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

    /// Goes on with a spin, and looks at the processor time. A driver may sleep when it is polled:
    /// that time counts as time with the processor, because nobody else took it.
    fn spin_on(
        &mut self,
        found: impl Fn() -> bool,
        progress: &mut impl FnMut() -> Result<Progress, Fault>,
    ) -> Result<bool, Fault> {
        let begun = (self.now)();
        let mut asleep = Duration::ZERO;
        let mut busy = true;
        loop {
            // Shows at once whether another thread wants the processor.
            std::thread::yield_now();
            let is_found = look(&found);
            if busy && !is_found {
                let polled = (self.now)();
                busy = progress()? == Progress::Busy;
                asleep += (self.now)().absent_since(&polled);
            }
            let now = (self.now)();
            let present = now.cpu.saturating_sub(begun.cpu) + asleep;
            let absent = now.absent_since(&begun).saturating_sub(asleep);
            let crowded = self.crowd.learn(absent);
            let spent = present >= self.budget - SPIN_MIN;
            if !crowded && (is_found || spent) {
                self.crowd.forget();
            }
            if is_found || crowded || spent {
                return Ok(is_found);
            }
        }
    }
}

impl Moment {
    fn now() -> Self {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Self {
            wall: Instant::now(),
            cpu: Duration::try_from(cpu).unwrap_or_default(),
        }
    }

    /// Returns the time since `earlier` in which the thread did not run.
    fn absent_since(&self, earlier: &Self) -> Duration {
        let ran = self.cpu.saturating_sub(earlier.cpu);
        (self.wall - earlier.wall).saturating_sub(ran)
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
fn sleep(
    bell: &Bell,
    is_metered: bool,
    progress: &mut impl FnMut() -> Result<Progress, Fault>,
) -> Result<(), Fault> {
    while progress()? == Progress::Busy {
        let mut limit = BUSY_SLEEP;
        if is_metered {
            // The bell's own limit is in milliseconds.
            std::thread::sleep(METERED_SLEEP);
            limit = Duration::ZERO;
        }
        if bell.sleep_for(limit) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::Any;
    use std::cell::Cell;
    use std::sync::Arc;

    use causeway_memory::{Backing, PageSize, SharedMemory};
    use causeway_protocol::message::Status;
    use causeway_protocol::ring::ring_bytes;

    use crate::backend::{BackendError, Exported, Memory};

    thread_local! {
        /// What the clocks of this test show, from their beginning.
        static WALL: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        static CPU: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn shown() -> Moment {
        static BEGUN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        Moment {
            wall: *BEGUN + WALL.get(),
            cpu: CPU.get(),
        }
    }

    fn run(time: Duration) {
        CPU.set(CPU.get() + time);
        WALL.set(WALL.get() + time);
    }

    fn be_away(time: Duration) {
        WALL.set(WALL.get() + time);
    }

    /// Spins until the budget is spent. Each look takes 1 µs and is away for `look_away`, and each
    /// poll sleeps for `poll_asleep`. Returns whether the spin was on a crowded processor, and how
    /// many polls it made.
    fn spin(look_away: Duration, poll_asleep: Duration) -> (bool, u32) {
        let mut idle = Idle {
            budget: SPIN_MAX,
            crowd: Crowd::default(),
            now: shown,
        };
        let looks = Cell::new(0_u32);
        let found = || {
            looks.set(looks.get() + 1);
            if looks.get().is_multiple_of(LOOKS) {
                run(Duration::from_micros(1));
                be_away(look_away);
            }
            false
        };
        let mut polls = 0;
        let mut progress = || {
            polls += 1;
            be_away(poll_asleep);
            Ok(Progress::Busy)
        };
        assert_eq!(idle.spin_on(found, &mut progress), Ok(false));
        (idle.crowd.seen, polls)
    }

    #[test]
    fn a_driver_that_sleeps_when_polled_takes_no_processor_away() {
        let (none, slice) = (Duration::ZERO, Duration::from_millis(1));
        assert_eq!(spin(slice, none), (true, 1), "others have the processor");
        assert_eq!(spin(none, slice), (false, 3), "the driver sleeps");
        let begun = CPU.get();
        let (crowded, polls) = spin(none, none);
        assert!(!crowded && polls > 100, "{polls} polls");
        let rest = SPIN_MAX - SPIN_MIN;
        assert_eq!(CPU.get() - begun, rest, "what is left of the budget");
    }

    #[test]
    fn work_that_is_found_waits_for_no_driver() {
        let mut idle = Idle {
            budget: SPIN_MAX,
            crowd: Crowd::default(),
            now: shown,
        };
        let mut progress = || panic!("it polls");
        assert_eq!(idle.spin_on(|| true, &mut progress), Ok(true));
    }

    /// Memory for a ring.
    struct RingMemory(Arc<SharedMemory>);

    impl Memory for RingMemory {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn backing(&self) -> Option<Backing> {
            Some(Backing::from(Arc::clone(&self.0)))
        }

        fn export(&self) -> Result<Exported, BackendError> {
            Err(BackendError::new(Status::Unsupported, "export a ring"))
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn a_wait_that_was_not_worth_a_spin_makes_the_next_spin_shorter() {
        let bytes = ring_bytes(256);
        let memory = SharedMemory::new("ring", bytes, PageSize::Small).unwrap();
        let ring = Ring::new(&RingMemory(Arc::new(memory)), 0, bytes).unwrap();
        let (bell, counters) = (Bell::new().unwrap(), Counters::default());
        let mut idle = Idle::new();
        for (before, after) in [(SPIN_MAX, SPIN_MAX / 2), (SPIN_MIN, SPIN_MIN)] {
            idle.budget = before;
            let progress = || {
                bell.doorbell().write(1).unwrap();
                std::thread::sleep(SPIN_MAX);
                Ok(Progress::Busy)
            };
            // It sleeps at once.
            idle.crowd.rest = 1;
            idle.wait(&ring, 0, &bell, (&counters, false), progress)
                .unwrap();
            assert_eq!(idle.budget, after);
        }
    }

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
