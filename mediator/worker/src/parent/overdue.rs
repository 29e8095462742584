//! Ends workers whose work on a GPU takes longer than the limit of their session.
//!
//! A GPU runs behind, so nobody sees how long one piece of work takes. Each worker writes into its
//! status page how many of its command buffers have work under way, and how many pieces have ended.
//! One thread looks at the pages of all workers. If no piece of a session has ended for longer than
//! its limit, the session is lost and its process is killed, which is what ends work of a GPU.
//!
//! While several sessions have work under way, the GPU divides itself between them. So the time
//! between two looks counts for each of them in equal parts.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::Quota;
use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;
use parking_lot::{Condvar, Mutex};

use super::worker::Worker;

/// Looks within the shortest limit.
const LOOKS: u32 = 8;
/// Longest time between two looks.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// How late a worker may say that a piece has ended: its threads may have to wait for a processor.
const LATE_MAX: Duration = Duration::from_millis(20);

/// The workers whose work is watched.
#[derive(Default)]
pub(super) struct Overdue {
    /// A leaf lock.
    state: Mutex<State>,
    /// A limit has changed, or there is one more worker.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    workers: Vec<Weak<Worker>>,
    has_thread: bool,
}

/// What the status page of a worker says of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Whether there is work under way.
    pub is_busy: bool,
    /// A number that changes when a piece of work ends.
    pub beats: u64,
}

/// How long the work of one worker has gone on without a beat.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    work: Work,
    time: Duration,
}

impl Overdue {
    /// Watches `worker` for as long as it lives. Fails if its session has a limit, and no thread
    /// can be started.
    pub fn watch(self: &Arc<Self>, worker: &Arc<Worker>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.workers.retain(|worker| worker.strong_count() != 0);
        state.workers.push(Arc::downgrade(worker));
        drop(state);
        match limit(worker) {
            Some(_) => self.heed(),
            None => Ok(()),
        }
    }

    /// Heeds limits that have changed. Fails if no thread can be started.
    pub fn heed(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.has_thread {
            let this = Arc::clone(self);
            let builder = std::thread::Builder::new().name("overdue".to_owned());
            builder.spawn(move || this.run())?;
            state.has_thread = true;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Looks from time to time, until no worker has a limit.
    fn run(&self) {
        let mut waited = BTreeMap::new();
        let mut looked = Instant::now();
        while let Some((workers, period)) = self.limited() {
            // A thread that was away for longer knows nothing of what happened meanwhile.
            let passed = looked.elapsed().min(2 * period);
            looked = Instant::now();
            for worker in look(&mut waited, &workers, passed) {
                lose(worker);
            }
            // Not with the lock held: the last reference ends the worker.
            drop(workers);
            let mut state = self.state.lock();
            self.changed.wait_for(&mut state, period);
        }
    }

    /// Returns all workers, and the time until the next look. Returns `None` if no worker has a
    /// limit: then the thread ends.
    fn limited(&self) -> Option<(Vec<Arc<Worker>>, Duration)> {
        let mut state = self.state.lock();
        let workers: Vec<_> = state.workers.iter().filter_map(Weak::upgrade).collect();
        let period = workers.iter().filter_map(|worker| limit(worker)).min();
        state.has_thread = period.is_some();
        drop(state);
        period.map(|shortest| (workers, (shortest / LOOKS).min(PERIOD_MAX)))
    }
}

/// Returns the limit of the worker's session.
fn limit(worker: &Worker) -> Option<Duration> {
    let work_ms = worker.limits.quota().work_ms;
    (work_ms != Quota::UNLIMITED).then(|| Duration::from_millis(work_ms))
}

/// Looks at all workers, `passed` after the last look. Returns those whose work takes too long.
fn look<'a>(
    waited: &mut BTreeMap<u64, Waited>,
    workers: &'a [Arc<Worker>],
    passed: Duration,
) -> Vec<&'a Worker> {
    let working = workers.iter().filter(|worker| worker.fault().is_none());
    let working: Vec<_> = working
        .map(|worker| (worker.number, worker.work()))
        .collect();
    go_on(waited, &working, passed);
    let overdue = workers.iter().filter(|worker| {
        let waited = waited.get(&worker.number).zip(limit(worker));
        waited.is_some_and(|(waited, limit)| waited.time > limit + LATE_MAX)
    });
    overdue.map(|worker| &**worker).collect()
}

/// Notes the present work of all workers, by their numbers, `passed` after the last time.
fn go_on(waited: &mut BTreeMap<u64, Waited>, working: &[(u64, Work)], passed: Duration) {
    waited.retain(|number, _| working.iter().any(|(it, _)| it == number));
    let busy = working.iter().filter(|(_, work)| work.is_busy).count();
    let part = passed / u32::try_from(busy).unwrap_or(u32::MAX).max(1);
    for (number, work) in working {
        waited.entry(*number).or_default().go_on(*work, part);
    }
}

impl Waited {
    /// Notes that the worker now has `work`, and that `passed` of the device's time was its own.
    fn go_on(&mut self, work: Work, passed: Duration) {
        self.time = match work.is_busy && self.work == work {
            true => self.time + passed,
            false => Duration::ZERO,
        };
        self.work = work;
    }
}

fn lose(worker: &Worker) {
    let limit_ms = worker.limits.quota().work_ms;
    let text = format!(
        "no kernel, copy or replay of this VM has ended for longer than its timeout={limit_ms} \
         allows: this loses the session; the guest must reset the device"
    );
    worker.lose(Fault::new(Status::Overdue, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_without_a_beat_waits() {
        let mut waited = Waited::default();
        let mut after = |is_busy, beats, ms| {
            waited.go_on(Work { is_busy, beats }, Duration::from_millis(ms));
            waited.time.as_millis()
        };
        assert_eq!(after(false, 0, 10), 0);
        assert_eq!(after(true, 0, 10), 0, "it has begun since the last look");
        assert_eq!(after(true, 0, 10), 10);
        assert_eq!(after(true, 0, 5), 15);
        assert_eq!(after(true, 1, 10), 0, "a piece has ended");
        assert_eq!(after(true, 1, 10), 10);
        assert_eq!(after(false, 1, 10), 0);
        assert_eq!(after(true, 1, 10), 0);
    }

    #[test]
    fn workers_with_work_share_the_time() {
        let mut waited = BTreeMap::new();
        let mut times = |busy: [bool; 3]| {
            let work = |(number, is_busy)| (number, Work { is_busy, beats: 7 });
            let working: Vec<_> = (1..).zip(busy).map(work).collect();
            go_on(&mut waited, &working, Duration::from_millis(12));
            [1, 2, 3].map(|number| waited[&number].time.as_millis())
        };
        assert_eq!(times([true, true, false]), [0, 0, 0]);
        assert_eq!(times([true, true, false]), [6, 6, 0]);
        assert_eq!(times([true, false, true]), [12, 0, 0]);
        assert_eq!(times([true, false, false]), [24, 0, 0]);
        assert_eq!(times([true, true, true]), [28, 0, 0]);
        go_on(&mut waited, &[], Duration::ZERO);
        assert!(waited.is_empty(), "workers that have gone are forgotten");
    }
}
