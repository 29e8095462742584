//! What work under way may still use, kept until that work is done.
//!
//! A queue that is fed by one thread and memory that is unmapped by another agree without a lock:
//!
//! * (Q1) the queue announces a submission, (Q2) looks at the generation of the table, (Q3) looks
//!   addresses up, and calls the driver;
//! * (U1) who unmaps takes the mapping out of the table, (U2) changes the generation, (U3) looks
//!   which submissions are announced, and keeps the memory until those are done.
//!
//! All of these are sequentially consistent. If U3 misses Q1, then Q2 sees U2, and the queue finds
//! nothing at Q3.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a wait spins before it sleeps, and how long it sleeps at a time.
const SPIN: Duration = Duration::from_micros(50);

/// How far a queue is, in submissions. Written by the thread that feeds it.
#[derive(Default)]
pub(crate) struct Progress {
    begun: AtomicU64,
    ended: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Announces one more submission (Q1).
    pub(crate) fn begin(&self) {
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::SeqCst);
    }

    /// Says that the driver has it.
    pub(crate) fn end(&self) {
        let number = self.begun.load(Ordering::Relaxed);
        self.ended.store(number, Ordering::SeqCst);
    }

    /// Submissions that the driver has.
    pub(crate) fn submitted(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Says that the GPU has done as many submissions.
    pub(crate) fn complete(&self, number: u64) {
        self.done.store(number, Ordering::SeqCst);
    }

    /// Returns whether the GPU has done all.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.begun.load(Ordering::Relaxed)
    }

    fn has_done(&self, number: u64) -> bool {
        self.done.load(Ordering::SeqCst) >= number
    }

    /// Returns the last submission that was announced, if it may be under way (U3).
    fn under_way(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        (!self.has_done(begun)).then_some(begun)
    }

    /// Returns the submission that the driver is being given, if there is one.
    fn submitting(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        (!self.has_ended(begun)).then_some(begun)
    }

    fn has_ended(&self, number: u64) -> bool {
        self.ended.load(Ordering::SeqCst) >= number
    }
}

/// Something that is dropped when all of the submissions named are done.
struct Item {
    what: Box<dyn Any + Send + Sync>,
    waits: Vec<(Arc<Progress>, u64)>,
}

/// The queues of an address space, and what waits for them.
#[derive(Default)]
pub(crate) struct DeferredDrops {
    queues: Mutex<Vec<Arc<Progress>>>,
    items: Mutex<Vec<Item>>,
    count: AtomicUsize,
}

impl DeferredDrops {
    /// Returns a new queue.
    pub(crate) fn register(&self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        self.queues.lock().push(Arc::clone(&progress));
        progress
    }

    /// A queue ends, and all of its work is done.
    pub(crate) fn unregister(&self, progress: &Arc<Progress>) {
        progress.complete(u64::MAX);
        self.queues
            .lock()
            .retain(|queue| !Arc::ptr_eq(queue, progress));
        self.collect();
    }

    /// Waits until the driver has every submission that was announced before, but no longer than
    /// `patience`. True if it has: what was looked up before U2 is used by nobody any more.
    pub(crate) fn await_submissions(&self, patience: Duration) -> bool {
        let announced = self.queues_with(Progress::submitting);
        let begun = Instant::now();
        announced.iter().all(|(queue, number)| {
            while !queue.has_ended(*number) {
                match begun.elapsed() {
                    elapsed if elapsed >= patience => return false,
                    elapsed if elapsed < SPIN => std::hint::spin_loop(),
                    _ => std::thread::sleep(SPIN),
                }
            }
            true
        })
    }

    /// Drops `what` when all work that was announced before is done: at once, if it is.
    pub(crate) fn defer(&self, what: Box<dyn Any + Send + Sync>) {
        let waits = self.queues_with(Progress::under_way);
        if waits.is_empty() {
            return;
        }
        self.items.lock().push(Item { what, waits });
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the queues for which `number` has one, with that number.
    fn queues_with(&self, number: impl Fn(&Progress) -> Option<u64>) -> Vec<(Arc<Progress>, u64)> {
        let queues = self.queues.lock();
        let known = queues.iter();
        known
            .filter_map(|queue| Some((Arc::clone(queue), number(queue)?)))
            .collect()
    }

    /// How many things wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Drops what waits no more.
    pub(crate) fn collect(&self) {
        if self.count() == 0 {
            return;
        }
        let mut items = self.items.lock();
        let ended: Vec<Item> = items
            .extract_if(.., |item| {
                item.waits
                    .iter()
                    .all(|(queue, number)| queue.has_done(*number))
            })
            .collect();
        self.count.fetch_sub(ended.len(), Ordering::SeqCst);
        drop(items);
        // Without the lock: this may take a while, and retire other things.
        drop(ended);
    }

    /// Keeps everything until the process ends.
    pub(crate) fn leak(&self) {
        for item in std::mem::take(&mut *self.items.lock()) {
            std::mem::forget(item.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_retired_outlives_the_work_announced_before_and_no_other() {
        let retired = DeferredDrops::default();
        let (a, b) = (retired.register(), retired.register());
        let what = Arc::new(());
        a.begin();
        assert!(!retired.await_submissions(Duration::from_millis(1)));
        retired.defer(Box::new(Arc::clone(&what)));
        a.end();
        assert!(retired.await_submissions(Duration::ZERO));
        // Later work is of no concern.
        b.begin();
        b.end();
        a.begin();
        a.end();
        retired.collect();
        assert_eq!((Arc::strong_count(&what), retired.count()), (2, 1));
        a.complete(1);
        retired.collect();
        assert_eq!((Arc::strong_count(&what), retired.count()), (1, 0));
        assert!(!a.is_done());
        a.complete(a.submitted());
        assert!(a.is_done());
    }

    #[test]
    fn idle_queues_hold_nothing_up_and_ended_ones_neither() {
        let retired = DeferredDrops::default();
        let what = Arc::new(());
        let queue = retired.register();
        retired.defer(Box::new(Arc::clone(&what)));
        assert_eq!(Arc::strong_count(&what), 1);
        queue.begin();
        queue.end();
        retired.defer(Box::new(Arc::clone(&what)));
        assert_eq!(Arc::strong_count(&what), 2);
        retired.unregister(&queue);
        assert_eq!(Arc::strong_count(&what), 1);
    }
}
