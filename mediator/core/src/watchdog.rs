//! Ends sessions whose work takes longer than their limit.
//!
//! A consumer cannot look at a clock while it executes a kernel. It changes a number when it begins
//! and when it ends a piece of work; a thread of the session looks at the numbers from time to
//! time, and a piece that is still the same after the limit loses the session. It costs two stores
//! for each piece, and a session without a limit has no thread.
//!
//! Where the device runs behind, nobody in this process can end work: the watchdog only has queues
//! tell the session's [`Pulse`] of their work, for somebody else who watches.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use parking_lot::{Condvar, Mutex};

use crate::backend::{Fault, Pulse};
use crate::generation::Generation;
use crate::quota::{Account, Quota, Resource};
use crate::refusal::warn_at_first;
use crate::statistics::Counters;

/// Looks at a piece of work within its limit: it may take longer by one part of so many.
const LOOKS: u32 = 8;
/// Longest time between two looks.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Number of a consumer's present piece of work: odd while the piece is under way, even after it.
/// Only the consumer changes it.
#[derive(Debug, Default)]
pub(crate) struct PieceNumber(AtomicU64);

impl PieceNumber {
    /// Notes that a piece of work begins.
    pub fn begin(&self) {
        self.step();
    }

    /// Notes that it has ended.
    pub fn end(&self) {
        self.step();
    }

    fn step(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(next, Ordering::Relaxed);
    }

    /// Returns the number of the piece under way; `None` if there is none.
    fn under_way(&self) -> Option<u64> {
        let number = self.0.load(Ordering::Relaxed);
        (number % 2 == 1).then_some(number)
    }
}

/// Watches the work of one session.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    /// Locked before the state.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// Name of the thread.
    name: String,
    account: Arc<Account>,
    counters: Arc<Counters>,
    /// A leaf lock.
    state: Mutex<State>,
    /// The limit or the work to watch has changed, or the session ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    watched: Vec<Watched>,
    ending: bool,
}

/// The work of one consumer.
struct Watched {
    work: Weak<PieceNumber>,
    generation: Weak<Generation>,
    /// Names the command buffer in logs.
    label: String,
    /// The piece that was under way at the last look, and when it was first seen.
    seen: Option<(u64, Instant)>,
}

impl Watchdog {
    pub fn new(name: String, account: Arc<Account>, counters: Arc<Counters>) -> Self {
        let shared = Shared {
            name,
            account,
            counters,
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        let watchdog = Self {
            shared: Arc::new(shared),
            pulse: Arc::default(),
            thread: Mutex::new(None),
        };
        watchdog.want_pulse();
        watchdog
    }

    /// Returns what is to show that work goes on, on a device that runs behind.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    fn want_pulse(&self) {
        self.pulse.want(self.shared.limit().is_some());
    }

    /// Watches `work` of the command buffer `label` for as long as it lives. A piece that takes
    /// too long ends `generation`. Fails if there is a limit, and no thread can be started.
    pub fn watch(
        &self,
        work: &Arc<PieceNumber>,
        generation: &Arc<Generation>,
        label: &str,
    ) -> io::Result<()> {
        let watched = Watched {
            work: Arc::downgrade(work),
            generation: Arc::downgrade(generation),
            label: label.to_owned(),
            seen: None,
        };
        let mut state = self.shared.state.lock();
        // Without a limit, nobody else does it.
        state.forget_ended();
        state.watched.push(watched);
        drop(state);
        self.heed()
    }

    /// Heeds a limit that may have changed. Fails as [`Self::watch`] does.
    pub fn heed(&self) -> io::Result<()> {
        let mut thread = self.thread.lock();
        // With the lock, or an older limit might come last.
        self.want_pulse();
        let has_work = !self.shared.state.lock().watched.is_empty();
        if thread.is_none() && has_work && self.shared.limit().is_some() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name(self.shared.name.clone());
            *thread = Some(builder.spawn(move || shared.run())?);
        }
        // The thread reads the limit and begins to wait under this lock.
        let _state = self.shared.state.lock();
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.state.lock().ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!(
                "the thread {} that ends work which takes too long panicked; this is a bug in \
                 Causeway",
                self.shared.name
            );
        }
    }
}

impl Shared {
    /// Returns the session's limit at present.
    fn limit(&self) -> Option<Duration> {
        let limit_ms = self.account.limit(Resource::WorkMs);
        (limit_ms != Quota::UNLIMITED).then(|| Duration::from_millis(limit_ms))
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.ending {
            let Some(limit) = self.limit() else {
                state.watched.iter_mut().for_each(|it| it.seen = None);
                self.changed.wait(&mut state);
                continue;
            };
            if let Some(overdue) = state.look(limit, Instant::now()) {
                drop(state);
                self.lose(&overdue, limit);
                state = self.state.lock();
                continue;
            }
            let period = (limit / LOOKS).min(PERIOD_MAX);
            self.changed.wait_for(&mut state, period);
        }
    }

    /// Loses the session of work that takes too long. Called with no lock held.
    fn lose(&self, overdue: &Watched, limit: Duration) {
        let Some(generation) = overdue.generation.upgrade() else {
            return;
        };
        let text = format!(
            "a kernel, a copy or a replay has taken longer than the session's limit of {} ms",
            limit.as_millis()
        );
        if generation.lose(Fault::new(Status::Overdue, text.clone())) {
            let level = warn_at_first(&self.counters.counted.faults);
            log::log!(
                level,
                "{}: {text}: this loses the session; the guest must reset the device",
                overdue.label
            );
        }
    }
}

impl State {
    /// Looks at all work. Returns one whose piece has been under way for longer than `limit`, and
    /// watches that no longer.
    fn look(&mut self, limit: Duration, now: Instant) -> Option<Watched> {
        self.forget_ended();
        let overdue = self
            .watched
            .iter_mut()
            .position(|it| it.look(now).is_some_and(|taken| taken > limit));
        overdue.map(|at| self.watched.swap_remove(at))
    }

    fn forget_ended(&mut self) {
        self.watched.retain(|it| it.work.strong_count() != 0);
    }
}

impl Watched {
    /// Returns how long the piece under way has been seen; `None` if there is none.
    fn look(&mut self, now: Instant) -> Option<Duration> {
        let under_way = self.work.upgrade().and_then(|work| work.under_way());
        self.seen = under_way.map(|number| match self.seen {
            Some((seen, since)) if seen == number => (seen, since),
            _ => (number, now),
        });
        self.seen.map(|(_, since)| now.duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::LimitChange;

    fn watchdog(work_ms: u64) -> (Watchdog, Arc<Generation>) {
        let quota = Quota {
            work_ms,
            ..Quota::default()
        };
        let watchdog = Watchdog::new("watchdog".into(), Account::new(quota), Arc::default());
        (watchdog, Generation::new(Arc::default(), Arc::default()))
    }

    #[test]
    fn only_a_piece_that_takes_longer_than_the_limit_is_overdue() {
        let (watchdog, generation) = watchdog(Quota::UNLIMITED);
        let works = [(); 2].map(|()| Arc::<PieceNumber>::default());
        for work in &works {
            watchdog.watch(work, &generation, "c").unwrap();
        }
        assert!(watchdog.thread.lock().is_none(), "there is no limit");
        let begun = Instant::now();
        let mut state = watchdog.shared.state.lock();
        let mut is_overdue = |ms| {
            let now = begun + Duration::from_millis(ms);
            state.look(Duration::from_millis(10), now).is_some()
        };
        assert!(!is_overdue(0) && !is_overdue(100), "no work");
        works[0].begin();
        assert!(!is_overdue(200) && !is_overdue(210));
        // Another piece begins at once.
        works[0].end();
        works[0].begin();
        assert!(!is_overdue(220) && !is_overdue(230));
        assert!(is_overdue(231));
        assert!(!is_overdue(500), "it is watched no longer");
        works[1].begin();
        let [_, second] = works;
        assert!(!is_overdue(600));
        drop(second);
        assert!(!is_overdue(700), "its command buffer has ended");
        assert!(state.watched.is_empty());
    }

    #[test]
    fn the_pulse_is_wanted_while_there_is_a_limit() {
        let (watchdog, _) = watchdog(10);
        assert!(watchdog.pulse().is_wanted());
        let limits = &watchdog.shared.account;
        for (work_ms, is_wanted) in [(Quota::UNLIMITED, false), (20, true)] {
            limits.change(&LimitChange {
                work_ms: Some(work_ms),
                ..LimitChange::default()
            });
            watchdog.heed().unwrap();
            assert_eq!(watchdog.pulse().is_wanted(), is_wanted);
        }
        let has_thread = watchdog.thread.lock().is_some();
        assert!(!has_thread, "it has no work to watch itself");
    }

    #[test]
    fn command_buffers_that_have_ended_leave_nothing() {
        let (watchdog, generation) = watchdog(Quota::UNLIMITED);
        for _ in 0..100 {
            let work = Arc::<PieceNumber>::default();
            watchdog.watch(&work, &generation, "c").unwrap();
        }
        assert_eq!(watchdog.shared.state.lock().watched.len(), 1);
    }

    #[test]
    fn a_thread_that_watches_ends_with_its_session() {
        let (watchdog, generation) = watchdog(10);
        let work = Arc::<PieceNumber>::default();
        watchdog.watch(&work, &generation, "c").unwrap();
        let shared = Arc::downgrade(&watchdog.shared);
        assert_eq!(shared.strong_count(), 2, "the thread has it, too");
        drop(watchdog);
        assert_eq!(shared.strong_count(), 0);
    }

    #[test]
    fn a_piece_that_never_ends_loses_the_session_but_no_other() {
        let (watched, generation) = watchdog(10);
        let (other, neighbour) = watchdog(10);
        let (endless, short) = (Arc::<PieceNumber>::default(), Arc::<PieceNumber>::default());
        watched.watch(&endless, &generation, "c").unwrap();
        other.watch(&short, &neighbour, "d").unwrap();
        endless.begin();
        short.begin();
        short.end();
        while !generation.ended() {
            std::thread::yield_now();
        }
        let fault = generation.fault().unwrap();
        assert_eq!(fault.status, Status::Overdue);
        assert!(fault.text.contains("10 ms"), "{fault}");
        assert!(!neighbour.ended());
    }
}
