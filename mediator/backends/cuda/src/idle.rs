//! Objects that are dropped when a context has no work: arrays.
//!
//! The driver destroys an array only when all work of its context is done. While it waits, no
//! thread can launch anything in the context (seen with driver 580 on an H200). All address
//! spaces of a VM share a context: a kernel of one process of the guest that never ends would hold
//! up all others. So arrays are put aside, and dropped at a moment when no queue of the context has
//! work.
//!
//! A thread that feeds a queue and a thread that drops agree without a lock:
//!
//! * The thread of the queue (Q1) announces a submission, and (Q2) looks whether the context is
//!   closed. If so, it takes the announcement back, and waits until the context is open.
//! * The thread that drops (D1) closes the context, (D2) looks whether a submission is announced
//!   that the driver does not have yet, and (D3) whether a stream has work. If neither is so, it
//!   drops. Then it opens the context.
//!
//! All of these accesses are sequentially consistent. If D2 misses Q1, then Q2 sees D1.

use std::any::Any;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::driver::{Context, Stream};
use crate::space::deferred::Progress;

/// How long queues are held up so that the context may come to have no work.
const HELD_MAX: Duration = Duration::from_millis(10);
/// How long queues are not held up again after that.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a thread sleeps between two looks.
const SLEEP: Duration = Duration::from_micros(50);

/// A queue of the context.
struct Member {
    progress: Arc<Progress>,
    stream: Weak<Stream>,
}

impl Member {
    /// Returns whether the queue has no work. An error of the driver ends all work.
    fn is_idle(&self) -> bool {
        let stream = self.stream.upgrade();
        !self.progress.is_submitting()
            && stream.is_none_or(|stream| stream.is_idle().unwrap_or(true))
    }
}

/// The queues of a context, and the objects that are dropped when these have no work.
pub(crate) struct Idle {
    context: Arc<Context>,
    members: Mutex<Vec<Member>>,
    ended: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    count: AtomicUsize,
    closed: AtomicBool,
    /// Set by a thread that wants the turn.
    asked: AtomicBool,
    /// Held by the one thread that may close the context: when queues were held up last.
    turn: Mutex<Option<Instant>>,
}

/// Keeps a context closed until dropped.
struct Closed<'a>(&'a AtomicBool);

impl<'a> Closed<'a> {
    /// Closes the context (D1).
    fn new(closed: &'a AtomicBool) -> Self {
        closed.store(true, Ordering::SeqCst);
        Self(closed)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Idle {
    /// Returns an empty list for the queues of `context`.
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            members: Mutex::default(),
            ended: Mutex::default(),
            count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            turn: Mutex::default(),
        })
    }

    /// Adds a queue, until its stream ends.
    pub(crate) fn add(&self, progress: &Arc<Progress>, stream: &Arc<Stream>) {
        let mut members = self.members.lock();
        members.retain(|member| member.stream.strong_count() != 0);
        members.push(Member {
            progress: Arc::clone(progress),
            stream: Arc::downgrade(stream),
        });
    }

    /// Announces a submission of the queue with this progress (Q1). Waits while the context is
    /// closed: some 10 ms at most, and then not again for 100 ms.
    #[inline]
    pub(crate) fn announce(&self, progress: &Progress) {
        progress.begin();
        while self.closed.load(Ordering::SeqCst) {
            progress.end();
            self.await_opening();
            progress.begin();
        }
    }

    #[cold]
    fn await_opening(&self) {
        while self.closed.load(Ordering::SeqCst) {
            std::thread::sleep(SLEEP);
        }
    }

    /// Drops what was put aside if the context has no work now.
    #[inline]
    pub(crate) fn collect(&self) {
        if self.has_any() {
            self.collect_within(Duration::ZERO);
        }
    }

    /// Does what [`Self::collect`] does, and holds up all queues of the context for up to
    /// [`HELD_MAX`] if they have work. Called before more of such objects are made: the memory of
    /// ended ones may be needed.
    pub(crate) fn drain(&self) {
        if self.has_any() {
            self.collect_within(HELD_MAX);
        }
    }

    fn has_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) != 0
    }

    #[cold]
    fn collect_within(&self, patience: Duration) {
        self.asked.store(true, Ordering::SeqCst);
        // A thread that finds the turn taken returns: the thread that has the turn looks again.
        while self.asked.load(Ordering::SeqCst)
            && let Some(mut last) = self.turn.try_lock()
        {
            self.asked.store(false, Ordering::SeqCst);
            self.take_turn(patience, &mut last);
        }
    }

    /// Drops what was put aside if the context has no work before `patience` is over. `last` is
    /// when queues were held up last.
    fn take_turn(&self, patience: Duration, last: &mut Option<Instant>) {
        let has_paused = last.is_none_or(|last| last.elapsed() >= PAUSE);
        // Most calls find the context at work, and need not close it to see that.
        if !self.is_idle() && (patience.is_zero() || !has_paused) {
            return;
        }
        let begun = Instant::now();
        let _closed = Closed::new(&self.closed);
        while !self.is_idle() {
            if begun.elapsed() >= patience {
                *last = Some(Instant::now());
                return;
            }
            std::thread::sleep(SLEEP);
        }
        while let Some(ended) = self.next() {
            drop(ended);
            if begun.elapsed() >= HELD_MAX {
                *last = Some(Instant::now());
                return;
            }
        }
    }

    /// Returns whether no queue has work. In a poisoned context the driver is not called, so there
    /// is nothing to wait for.
    fn is_idle(&self) -> bool {
        self.context.is_poisoned() || self.members.lock().iter().all(Member::is_idle)
    }

    /// Takes out something that was put aside.
    fn next(&self) -> Option<Box<dyn Any + Send + Sync>> {
        let mut ended = self.ended.lock();
        let next = ended.pop();
        self.count.store(ended.len(), Ordering::SeqCst);
        next
    }

    /// Puts `what` aside, and drops it if the context has no work now.
    fn put(&self, what: Box<dyn Any + Send + Sync>) {
        let mut ended = self.ended.lock();
        ended.push(what);
        self.count.store(ended.len(), Ordering::SeqCst);
        drop(ended);
        self.collect();
    }
}

/// An object of a context, which is dropped when the context has no work.
pub(crate) struct DroppedIdle<T: Send + Sync + 'static> {
    /// Taken out only by `drop`.
    what: Option<T>,
    idle: Arc<Idle>,
}

impl<T: Send + Sync + 'static> DroppedIdle<T> {
    pub(crate) fn new(what: T, idle: &Arc<Idle>) -> Self {
        Self {
            what: Some(what),
            idle: Arc::clone(idle),
        }
    }
}

impl<T: Send + Sync + 'static> Deref for DroppedIdle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what.as_ref().expect("taken out only by `drop`")
    }
}

impl<T: Send + Sync + 'static> Drop for DroppedIdle<T> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.idle.put(Box::new(what));
        }
    }
}
