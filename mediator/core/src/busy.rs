//! How long a session has work under way on the GPU.
//!
//! Each command buffer says when it begins work and when it sees that the work is done. Two clock
//! reads for a burst of work are all that this costs: it is on the data path. On a queue that
//! executes work as it is submitted, the packets that the consumer takes at once are one burst.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What a command buffer has under way on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnderWay {
    /// Nothing.
    #[default]
    Nothing,
    /// Fences and timestamps.
    Words,
    /// Copies or fills.
    Memory,
    /// At least one kernel.
    Kernels,
}

/// Times since the session began, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BusyTimes {
    /// Time in which at least one command buffer had work under way.
    pub busy_ns: u64,
    /// Time in which command buffers had kernels under way, added up over command buffers.
    pub kernel_ns: u64,
}

/// A function that is called with what a session has under way.
type BusyObserver = Box<dyn Fn(Bursts) + Send + Sync>;

/// What a session has under way, as somebody sees it who looks from time to time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    /// Command buffers with anything under way.
    pub under_way: u32,
    /// How often a command buffer has begun something when it had nothing under way; after the
    /// largest number comes 0.
    pub begun: u32,
}

/// Adds up the times of a session.
#[derive(Default)]
pub(crate) struct BusyClock {
    /// A leaf lock.
    state: Mutex<State>,
    observer: OnceLock<BusyObserver>,
}

causeway_memory::debug_fields!(BusyClock { state });

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Number of command buffers with work under way, and of those with kernels under way.
    busy: u32,
    kernels: u32,
    bursts: Bursts,
    /// When the times were last brought up to date; `None` before the first work.
    at: Option<Instant>,
    times: BusyTimes,
    /// How often a command buffer has read the clock.
    #[cfg(test)]
    changes: u32,
}

impl BusyClock {
    /// Returns the times until `now`. Work that is under way counts, however long it still takes.
    pub fn times(&self, now: Instant) -> BusyTimes {
        let mut state = self.state.lock();
        state.advance(now);
        state.times
    }

    /// Makes each change call `observer`, in the order of the changes and with the lock held. A
    /// second observer is ignored.
    pub fn observe(&self, observer: impl Fn(Bursts) + Send + Sync + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }

    /// Notes that a command buffer, which had `before` under way, now has `after`.
    fn change(&self, before: UnderWay, after: UnderWay, now: Instant) {
        let mut state = self.state.lock();
        state.advance(now);
        state.add(after);
        state.remove(before);
        state.bursts.change(before, after);
        if let Some(observer) = self.observer.get() {
            observer(state.bursts);
        }
        #[cfg(test)]
        {
            state.changes += 1;
        }
    }
}

impl State {
    fn advance(&mut self, now: Instant) {
        // Another thread may have read a later time and been first with the lock.
        let at = self.at.map_or(now, |at| at.max(now));
        let passed = self.at.map_or(Duration::ZERO, |before| at - before);
        let passed_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        self.at = Some(at);
        if self.busy != 0 {
            self.times.busy_ns = self.times.busy_ns.saturating_add(passed_ns);
        }
        let kernel_ns = passed_ns.saturating_mul(self.kernels.into());
        self.times.kernel_ns = self.times.kernel_ns.saturating_add(kernel_ns);
    }

    fn add(&mut self, work: UnderWay) {
        self.busy += u32::from(work > UnderWay::Words);
        self.kernels += u32::from(work == UnderWay::Kernels);
    }

    fn remove(&mut self, work: UnderWay) {
        self.busy -= u32::from(work > UnderWay::Words);
        self.kernels -= u32::from(work == UnderWay::Kernels);
    }
}

impl Bursts {
    fn change(&mut self, before: UnderWay, after: UnderWay) {
        if before == UnderWay::Nothing && after != UnderWay::Nothing {
            self.under_way += 1;
            self.begun = self.begun.wrapping_add(1);
        }
        if before != UnderWay::Nothing && after == UnderWay::Nothing {
            self.under_way -= 1;
        }
    }
}

/// What one command buffer has under way, for the clock of its session. A drop ends it.
pub(crate) struct Burst {
    clock: Arc<BusyClock>,
    under_way: UnderWay,
}

impl Burst {
    /// Returns a burst without work, which counts on `clock`.
    pub fn new(clock: Arc<BusyClock>) -> Self {
        let under_way = UnderWay::Nothing;
        Self { clock, under_way }
    }

    /// Notes that the command buffer begins `work`, beside what it has under way already.
    pub fn begin(&mut self, work: UnderWay) {
        if work > self.under_way {
            self.set(work);
        }
    }

    /// Notes that the command buffer begins `work`, after the end of what it had under way. Fences
    /// take no time worth two clock reads, and go with the rest.
    pub fn go_on(&mut self, work: UnderWay) {
        if work > UnderWay::Words && work != self.under_way {
            self.set(work);
        }
    }

    /// Notes that all work of the command buffer is done.
    pub fn end(&mut self) {
        if self.under_way != UnderWay::Nothing {
            self.set(UnderWay::Nothing);
        }
    }

    /// Notes that the work goes on for ever, as far as is known.
    pub fn leak(&mut self) {
        self.under_way = UnderWay::Nothing;
    }

    fn set(&mut self, work: UnderWay) {
        let before = std::mem::replace(&mut self.under_way, work);
        self.clock.change(before, work, Instant::now());
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use UnderWay::{Kernels, Memory, Nothing, Words};

    #[test]
    fn time_counts_once_for_the_session_and_kernels_for_each_command_buffer() {
        let clock = BusyClock::default();
        let begun = Instant::now();
        let at = |ns| begun + Duration::from_nanos(ns);
        let times = |ns| {
            let BusyTimes { busy_ns, kernel_ns } = clock.times(at(ns));
            (busy_ns, kernel_ns)
        };
        assert_eq!(times(0), (0, 0));
        clock.change(Nothing, Memory, at(100));
        assert_eq!(times(110), (10, 0), "a copy is no kernel");
        clock.change(Memory, Kernels, at(120));
        clock.change(Nothing, Kernels, at(130));
        assert_eq!(times(140), (40, 30), "two kernels for 10 ns, one for 10 ns");
        clock.change(Kernels, Nothing, at(150));
        clock.change(Kernels, Nothing, at(160));
        assert_eq!(times(1000), (60, 60));
    }

    #[test]
    fn a_time_that_comes_late_counts_nothing_twice() {
        let clock = BusyClock::default();
        let begun = Instant::now();
        let at = |ns| begun + Duration::from_nanos(ns);
        clock.change(Nothing, Kernels, at(0));
        assert_eq!(clock.times(at(50)).busy_ns, 50);
        clock.change(Kernels, Nothing, at(40));
        assert_eq!(clock.times(at(60)).busy_ns, 50);
    }

    #[test]
    fn an_observer_hears_how_many_command_buffers_are_busy() {
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let clock = Arc::<BusyClock>::default();
        let told = Arc::clone(&heard);
        clock.observe(move |it: Bursts| told.lock().push((it.under_way, it.begun)));
        let mut bursts = [(); 2].map(|()| Burst::new(Arc::clone(&clock)));
        bursts[0].begin(Memory);
        bursts[1].begin(Words);
        bursts[0].begin(Kernels);
        bursts[1].end();
        assert_eq!(clock.state.lock().busy, 1, "fences take no time");
        bursts[1].begin(Memory);
        bursts[1].leak();
        drop(bursts);
        let expected = [(1, 1), (2, 2), (2, 2), (1, 2), (2, 3), (1, 3)];
        assert_eq!(*heard.lock(), expected);
    }

    #[test]
    fn a_burst_ends_with_its_command_buffer() {
        let clock = Arc::<BusyClock>::default();
        let mut burst = Burst::new(Arc::clone(&clock));
        burst.begin(Kernels);
        burst.begin(Memory);
        burst.begin(Kernels);
        assert_eq!(burst.under_way, Kernels, "a copy behind a kernel");
        assert_eq!(clock.state.lock().changes, 1, "it is one burst");
        drop(burst);
        let state = *clock.state.lock();
        assert_eq!((state.busy, state.kernels), (0, 0));
    }

    #[test]
    fn packets_taken_at_once_read_the_clock_once_for_each_kind_of_work() {
        let clock = Arc::<BusyClock>::default();
        let mut burst = Burst::new(Arc::clone(&clock));
        let changes = || clock.state.lock().changes;
        burst.go_on(Words);
        assert_eq!(changes(), 0, "a fence alone");
        for _ in 0..40 {
            burst.go_on(Kernels);
            burst.go_on(Words);
        }
        assert_eq!((changes(), burst.under_way), (1, Kernels));
        burst.go_on(Memory);
        assert_eq!((changes(), burst.under_way), (2, Memory), "no kernel runs");
        burst.end();
        burst.end();
        assert_eq!((changes(), burst.under_way), (3, Nothing));
    }
}
