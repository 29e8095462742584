//! Keeps mappings and textures that work under way may still use until that work is done.
//!
//! One thread feeds a queue, and another thread unmaps memory. They agree without a lock:
//!
//! * The thread of the queue (Q1) announces a submission, (Q2) loads the generation of the table,
//!   (Q3) looks up addresses, and calls the driver.
//! * The thread that unmaps (U1) takes the mapping out of the table, (U2) changes the generation,
//!   (U3) looks which submissions are announced, and keeps the memory until those are done.
//!
//! All of these accesses are sequentially consistent. If U3 misses Q1, then Q2 sees U2, and the
//! queue does not find the mapping at Q3.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a wait spins before it sleeps, and how long it sleeps at a time.
const SPIN: Duration = Duration::from_micros(50);

/// Counts the submissions of one queue: announced, handed to the driver, done by the GPU. Only the
/// thread that feeds the queue changes the counts.
#[derive(Default)]
pub(crate) struct Progress {
    /// The submission that launches which wait to be gathered become, or an earlier one.
    expected: AtomicU64,
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

    /// Notes that launches wait that are the next submission: they count as announced for what is
    /// dropped when they are done.
    pub(crate) fn expect(&self) {
        let number = self.begun.load(Ordering::Relaxed) + 1;
        if self.expected.load(Ordering::Relaxed) != number {
            self.expected.store(number, Ordering::SeqCst);
        }
    }

    /// Notes that the driver has the submission that was announced last.
    pub(crate) fn end(&self) {
        let number = self.begun.load(Ordering::Relaxed);
        self.ended.store(number, Ordering::SeqCst);
    }

    /// Returns the number of submissions that the driver has got so far.
    pub(crate) fn submitted(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Notes that the GPU has done the first `number` submissions.
    pub(crate) fn complete(&self, number: u64) {
        self.done.store(number, Ordering::SeqCst);
    }

    /// Returns whether the GPU has done all submissions that were announced.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.begun.load(Ordering::Relaxed)
    }

    fn has_done(&self, number: u64) -> bool {
        self.done.load(Ordering::SeqCst) >= number
    }

    /// Returns the last submission that was announced, if it may be under way (U3).
    fn under_way(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        let last = begun.max(self.expected.load(Ordering::SeqCst));
        (!self.has_done(last)).then_some(last)
    }

    /// Returns whether a submission was announced that the driver does not have yet.
    pub(crate) fn is_submitting(&self) -> bool {
        self.submitting().is_some()
    }

    /// Returns the submission that was announced, but that the driver does not have yet.
    fn submitting(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        (!self.has_ended(begun)).then_some(begun)
    }

    fn has_ended(&self, number: u64) -> bool {
        self.ended.load(Ordering::SeqCst) >= number
    }
}

/// Something that is dropped when all submissions in `waits` are done.
struct Item {
    what: Box<dyn Any + Send + Sync>,
    waits: Vec<(Arc<Progress>, u64)>,
}

/// The queues of an address space, and what is dropped when work of those queues is done.
#[derive(Default)]
pub(crate) struct DeferredDrops {
    queues: Mutex<Vec<Arc<Progress>>>,
    items: Mutex<Vec<Item>>,
    count: AtomicUsize,
}

impl DeferredDrops {
    /// Adds a queue, and returns its counts of submissions.
    pub(crate) fn register(&self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        self.queues.lock().push(Arc::clone(&progress));
        progress
    }

    /// Removes the queue of `progress`, whose work is all done.
    pub(crate) fn unregister(&self, progress: &Arc<Progress>) {
        progress.complete(u64::MAX);
        self.queues
            .lock()
            .retain(|queue| !Arc::ptr_eq(queue, progress));
        self.collect();
    }

    /// Waits until the driver has every submission that was announced before this call, but no
    /// longer than `patience`. Returns whether it has them all: then no queue uses an address that
    /// it looked up before U2.
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

    /// Drops `what` when all submissions that were announced before this call are done: at once if
    /// they are done already.
    pub(crate) fn defer(&self, what: Box<dyn Any + Send + Sync>) {
        let waits = self.queues_with(Progress::under_way);
        if waits.is_empty() {
            return;
        }
        self.items.lock().push(Item { what, waits });
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the queues for which `number` returns a submission, with that submission.
    fn queues_with(&self, number: impl Fn(&Progress) -> Option<u64>) -> Vec<(Arc<Progress>, u64)> {
        let queues = self.queues.lock();
        let known = queues.iter();
        known
            .filter_map(|queue| Some((Arc::clone(queue), number(queue)?)))
            .collect()
    }

    /// Returns the number of items that wait for work.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Drops the items whose submissions are done.
    pub(crate) fn collect(&self) {
        if self.count() == 0 {
            return;
        }
        let mut items = self.items.lock();
        let has_ended = |item: &mut Item| {
            let mut waits = item.waits.iter();
            waits.all(|(queue, number)| queue.has_done(*number))
        };
        let ended: Vec<Item> = items.extract_if(.., has_ended).collect();
        self.count.fetch_sub(ended.len(), Ordering::SeqCst);
        drop(items);
        // Without the lock: this may take a while, and defer other drops.
        drop(ended);
    }

    /// Leaks all items, so that they exist until the process ends.
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
    fn launches_that_wait_to_be_gathered_count_as_announced() {
        let retired = DeferredDrops::default();
        let queue = retired.register();
        let what = Arc::new(());
        queue.expect();
        assert!(queue.is_done() && retired.await_submissions(Duration::ZERO));
        retired.defer(Box::new(Arc::clone(&what)));
        queue.begin();
        queue.end();
        retired.collect();
        assert_eq!(Arc::strong_count(&what), 2);
        queue.complete(1);
        retired.collect();
        assert_eq!(Arc::strong_count(&what), 1);
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
