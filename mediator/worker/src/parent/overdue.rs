//! Ends workers whose work on a GPU takes longer than the limit of their session.
//!
//! A GPU runs behind, so nobody sees how long one piece of work takes. Each worker writes into its
//! status page how many pieces have begun, and how many have ended. One thread looks at the pages of
//! all workers. If a session has pieces under way and none of them has ended for longer than its
//! limit, the session is lost and its process is killed, which is what ends work of a GPU.
//!
//! While several sessions use the GPU, it divides itself between them. So the time between two
//! looks counts in equal parts for all that have used it since the last look.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;
use parking_lot::{Condvar, Mutex};

/// Looks within the shortest limit.
const LOOKS: u32 = 8;
/// Longest time between two looks.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// Fewest looks within a limit. The host may stop this thread for some time, and the worker with it:
/// one look adds no more than its part.
const LOOKS_MIN: u32 = 4;
/// How late a worker may say that a piece has ended: its threads may have to wait for a processor.
const LATE_MAX: Duration = Duration::from_millis(20);

/// A worker, as seen from here.
pub(super) trait Watched: Send + Sync {
    /// Returns its number, which no other one has.
    fn number(&self) -> u64;
    /// Returns what its status page says of its work; `None` if it is lost.
    fn work(&self) -> Option<Work>;
    /// Returns how long each piece of its work may take; `None` if for ever.
    fn limit(&self) -> Option<Duration>;
    /// Kills it, and loses its session because of `fault`.
    fn lose(&self, fault: Fault);
}

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
    workers: Vec<Weak<dyn Watched>>,
    has_thread: bool,
}

/// What the status page of a worker says of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// In the lower half, how many command buffers have anything under way; in the upper one, how
    /// often one has begun something.
    pub bursts: u64,
    /// Pieces of work that have begun while the session had a limit, and those that have ended.
    pub begun: u64,
    pub ended: u64,
}

/// A worker at one look.
struct Seen {
    number: u64,
    work: Work,
    limit: Option<Duration>,
}

/// How long the work of one worker has gone on without an end.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    work: Work,
    time: Duration,
}

impl Overdue {
    /// Watches `worker` for as long as it lives. Fails if its session has a limit, and no thread
    /// can be started.
    pub fn watch(self: &Arc<Self>, worker: &Arc<dyn Watched>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.forget_ended();
        state.workers.push(Arc::downgrade(worker));
        drop(state);
        match worker.limit() {
            Some(_) => self.heed(),
            None => Ok(()),
        }
    }

    /// Heeds limits, which may have changed. Fails if no thread can be started. Does nothing if no
    /// worker has a device that runs behind.
    pub fn heed(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.forget_ended();
        if !state.has_thread && !state.workers.is_empty() {
            let this = Arc::clone(self);
            let builder = std::thread::Builder::new().name("overdue".to_owned());
            builder.spawn(move || this.run())?;
            state.has_thread = true;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Returns whether somebody looks.
    pub fn has_thread(&self) -> bool {
        self.state.lock().has_thread
    }

    /// Looks from time to time, until no worker has a limit.
    fn run(&self) {
        let mut waited = BTreeMap::new();
        let mut looked = Instant::now();
        while let Some((workers, period)) = self.limited() {
            let passed = looked.elapsed();
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
    fn limited(&self) -> Option<(Vec<Arc<dyn Watched>>, Duration)> {
        let mut state = self.state.lock();
        let workers: Vec<_> = state.workers.iter().filter_map(Weak::upgrade).collect();
        let shortest = workers.iter().filter_map(|worker| worker.limit()).min();
        state.has_thread = shortest.is_some();
        drop(state);
        shortest.map(|shortest| (workers, (shortest / LOOKS).min(PERIOD_MAX)))
    }
}

impl State {
    fn forget_ended(&mut self) {
        self.workers.retain(|worker| worker.strong_count() != 0);
    }
}

/// Looks at all workers, `passed` after the last look. Returns those whose work takes too long.
fn look<'a>(
    waited: &mut BTreeMap<u64, Waited>,
    workers: &'a [Arc<dyn Watched>],
    passed: Duration,
) -> Vec<&'a dyn Watched> {
    let seen = workers.iter().filter_map(|worker| {
        Some(Seen {
            number: worker.number(),
            work: worker.work()?,
            limit: worker.limit(),
        })
    });
    let overdue = go_on(waited, &seen.collect::<Vec<_>>(), passed);
    let overdue = |worker: &&Arc<dyn Watched>| overdue.contains(&worker.number());
    workers.iter().filter(overdue).map(|it| &**it).collect()
}

/// Notes what all workers do now, `passed` after the last time. Returns the numbers of those whose
/// work takes too long.
fn go_on(waited: &mut BTreeMap<u64, Waited>, seen: &[Seen], passed: Duration) -> Vec<u64> {
    waited.retain(|number, _| seen.iter().any(|it| it.number == *number));
    let has_used = |it: &&Seen| {
        let before = waited.get(&it.number);
        it.work
            .has_used(&before.map_or(it.work, |before| before.work))
    };
    let users = seen.iter().filter(has_used).count();
    let part = passed / u32::try_from(users).unwrap_or(u32::MAX).max(1);
    let overdue = seen.iter().filter(|it| {
        let waited = waited.entry(it.number).or_default();
        let most = it.limit.map_or(Duration::ZERO, |limit| limit / LOOKS_MIN);
        waited.go_on(it.work, part.min(most));
        it.limit.is_some_and(|limit| waited.time > limit + LATE_MAX)
    });
    overdue.map(|it| it.number).collect()
}

impl Work {
    /// Returns whether the worker has used the GPU since it had the work `before`.
    fn has_used(&self, before: &Self) -> bool {
        let under_way = self.bursts as u32;
        under_way != 0 || self.bursts != before.bursts
    }
}

impl Waited {
    /// Notes that the worker now has `work`, and that `passed` of the device's time was its own.
    fn go_on(&mut self, work: Work, passed: Duration) {
        let has_ended = work.begun == work.ended || work.ended != self.work.ended;
        // A piece that has begun since the last look has not been under way for all that time.
        let is_new = self.work.begun == self.work.ended;
        self.time = match has_ended || is_new {
            true => Duration::ZERO,
            false => self.time + passed,
        };
        self.work = work;
    }
}

fn lose(worker: &dyn Watched) {
    let limit_ms = worker.limit().map_or(0, |limit| limit.as_millis());
    let text = format!(
        "no kernel, copy or replay of this VM has ended for longer than its timeout={limit_ms} \
         allows: this loses the session; the guest must reset the device"
    );
    worker.lose(Fault::new(Status::Overdue, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn only_pieces_that_do_not_end_wait() {
        let mut waited = Waited::default();
        let mut after = |begun, ended, ms| {
            let work = Work {
                bursts: 1,
                begun,
                ended,
            };
            waited.go_on(work, MS(ms));
            waited.time
        };
        assert_eq!(after(0, 0, 10), MS(0), "work that nobody has marked");
        assert_eq!(after(2, 0, 10), MS(0), "it has begun since the last look");
        assert_eq!(after(3, 0, 10), MS(10), "one more has begun");
        assert_eq!(after(3, 0, 5), MS(15));
        assert_eq!(after(3, 1, 10), MS(0), "a piece has ended");
        assert_eq!(after(3, 1, 10), MS(10));
        assert_eq!(after(3, 3, 10), MS(0), "all have");
        assert_eq!(after(4, 3, 10), MS(0));
        assert_eq!(after(4, 3, 10), MS(10));
    }

    fn seen(number: u64, bursts: u64, is_working: bool) -> Seen {
        Seen {
            number,
            work: Work {
                bursts,
                begun: is_working.into(),
                ended: 0,
            },
            limit: Some(MS(100)),
        }
    }

    #[test]
    fn workers_that_use_the_gpu_share_the_time() {
        let mut waited = BTreeMap::new();
        let mut times = |bursts: [u64; 3]| {
            let working = [true, true, false];
            let numbers = (1..).zip(bursts).zip(working);
            let all: Vec<_> = numbers.map(|((n, b), w)| seen(n, b, w)).collect();
            go_on(&mut waited, &all, MS(12));
            [1, 2, 3].map(|number| waited[&number].time.as_millis())
        };
        let begun = 1 << 32;
        assert_eq!(times([1, 1, 0]), [0, 0, 0]);
        assert_eq!(times([1, 1, 0]), [6, 6, 0]);
        assert_eq!(times([1, 1, 1]), [10, 10, 0]);
        assert_eq!(times([1, 1, 0]), [14, 14, 0], "it has used it");
        assert_eq!(times([1, 1, begun]), [18, 18, 0], "and again");
        assert_eq!(times([1, 1, begun]), [24, 24, 0]);
        go_on(&mut waited, &[], MS(0));
        assert!(waited.is_empty(), "workers that have gone are forgotten");
    }

    #[test]
    fn work_is_overdue_after_its_limit_and_only_by_time_that_was_looked_at() {
        let mut waited = BTreeMap::new();
        let mut is_overdue = |limit, ms| {
            let it = Seen {
                limit,
                ..seen(7, 1, true)
            };
            !go_on(&mut waited, &[it], MS(ms)).is_empty()
        };
        assert!(!is_overdue(None, 10), "it has no limit");
        assert!(!is_overdue(None, 1_000_000));
        let limit = Some(MS(100));
        for _ in 0..4 {
            assert!(!is_overdue(limit, 1_000_000), "a quarter for each look");
        }
        assert!(!is_overdue(limit, 20));
        assert!(is_overdue(limit, 1));
    }

    /// A worker without work, with this limit.
    struct Idle(Option<Duration>);

    impl Watched for Idle {
        fn number(&self) -> u64 {
            1
        }

        fn work(&self) -> Option<Work> {
            None
        }

        fn limit(&self) -> Option<Duration> {
            self.0
        }

        fn lose(&self, _: Fault) {}
    }

    #[test]
    fn workers_that_have_ended_are_forgotten() {
        let overdue = Arc::new(Overdue::default());
        for _ in 0..4 {
            let worker: Arc<dyn Watched> = Arc::new(Idle(None));
            overdue.watch(&worker).unwrap();
        }
        assert_eq!(overdue.state.lock().workers.len(), 1, "the last one");
    }

    #[test]
    fn several_looks_fit_into_the_shortest_limit() {
        let overdue = Overdue::default();
        let workers =
            [MS(80), MS(400)].map(|limit| Arc::new(Idle(Some(limit))) as Arc<dyn Watched>);
        overdue.state.lock().workers = workers.iter().map(Arc::downgrade).collect();
        let (watched, period) = overdue.limited().unwrap();
        assert_eq!((watched.len(), period), (2, MS(80) / LOOKS));
    }

    #[test]
    fn one_thread_looks_at_workers_and_none_without_them() {
        let overdue = Arc::new(Overdue::default());
        overdue.heed().unwrap();
        assert!(!overdue.has_thread());
        let worker: Arc<dyn Watched> = Arc::new(Idle(Some(MS(1_000_000))));
        overdue.watch(&worker).unwrap();
        overdue.heed().unwrap();
        assert!(overdue.has_thread());
        // Each thread has a reference of its own.
        assert_eq!(Arc::strong_count(&overdue), 2);
    }
}
