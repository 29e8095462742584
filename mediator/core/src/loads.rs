//! Loads of modules under way, and the host memory that they may need together.
//!
//! A load needs memory that is gone when it ends: a copy of the image, a syntax tree, code that is
//! not finished. No quota of a session counts it, since a load that is refused because another one
//! runs at the moment is of no use to a guest. Loads wait instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use parking_lot::{Condvar, Mutex};

use crate::refusal::Refusal;

/// Bytes that the loads of all sessions need at most, as back ends estimate them.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes that the loads of one session need at most, so that two sessions can load at any time.
const SESSION_BYTES_MAX: u64 = BYTES_MAX / 2;
/// A load is small if it needs no more than this: it takes milliseconds, a large one many seconds.
const SMALL_BYTES: u64 = 4 << 20;
/// What large loads of a session leave to its small ones, so that these do not wait for them.
const SMALL_ROOM: u64 = 64 << 20;
/// Bytes that the large loads of one session need at most. A larger load counts as one of this
/// size.
const LARGE_BYTES_MAX: u64 = SESSION_BYTES_MAX - SMALL_ROOM;
/// How long a load waits for others before it is refused.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a load that waits looks whether its session has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The loads of modules of all sessions on a mediator.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// A leaf lock.
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Loads under way and those that wait, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    loads: Vec<Load>,
    next: u64,
}

#[derive(Debug)]
struct Load {
    number: u64,
    session: u64,
    bytes: u64,
    has_begun: bool,
}

impl Load {
    fn is_small(&self) -> bool {
        self.bytes <= SMALL_BYTES
    }
}

/// A load under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    loads: Arc<Loads>,
    number: u64,
}

impl Loads {
    /// Begins a load of `session` that needs `bytes` bytes, or waits until it can begin. Loads
    /// begin in the order in which they came, with two exceptions: one which waits for its own
    /// session holds up no other session, and small ones do not wait for large ones of their
    /// session.
    ///
    /// # Errors
    /// `DeviceLost` if `gives_up` returns true meanwhile, `Busy` if the load has waited for half a
    /// minute.
    pub fn begin(
        self: &Arc<Self>,
        session: u64,
        bytes: u64,
        gives_up: impl Fn() -> bool,
    ) -> Result<UnderWay, Refusal> {
        self.begin_within(PATIENCE, session, bytes, gives_up)
    }

    fn begin_within(
        self: &Arc<Self>,
        patience: Duration,
        session: u64,
        bytes: u64,
        gives_up: impl Fn() -> bool,
    ) -> Result<UnderWay, Refusal> {
        let came = Instant::now();
        let mut queue = self.queue.lock();
        let number = queue.join(session, bytes.min(LARGE_BYTES_MAX));
        // Leaves the queue when dropped.
        let load = UnderWay {
            loads: Arc::clone(self),
            number,
        };
        let status = loop {
            if queue.begin(number) {
                return Ok(load);
            }
            if gives_up() {
                break Status::DeviceLost;
            }
            if came.elapsed() >= patience {
                break Status::Busy;
            }
            self.changed.wait_for(&mut queue, LOOK);
        };
        drop(queue);
        Err(Refusal::new(status))
    }
}

impl Queue {
    fn join(&mut self, session: u64, bytes: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        self.loads.push(Load {
            number,
            session,
            bytes,
            has_begun: false,
        });
        number
    }

    /// Begins load `number` if its turn has come, and returns whether it has begun.
    fn begin(&mut self, number: u64) -> bool {
        let Some(at) = self.loads.iter().position(|load| load.number == number) else {
            return false;
        };
        let bytes = self.bytes_under_way(|_| true) + self.loads[at].bytes;
        let begins = self.is_next(at) && self.session_lets(at) && bytes <= BYTES_MAX;
        self.loads[at].has_begun = begins;
        begins
    }

    /// Returns whether no other load is to begin before the load at index `at`, which waits.
    fn is_next(&self, at: usize) -> bool {
        let passed = self.passed_by(at);
        let waits = |other: usize| !self.loads[other].has_begun && !passed(&self.loads[other]);
        !(0..at).any(|other| waits(other) && self.session_lets(other))
    }

    /// Returns which loads that came before the load at index `at` may begin after it: if it is
    /// small, large ones of its session, as long as they leave it room.
    fn passed_by(&self, at: usize) -> impl Fn(&Load) -> bool {
        let Load { session, bytes, .. } = self.loads[at];
        let small = self.bytes_under_way(|load| load.session == session && load.is_small());
        let passes = self.loads[at].is_small() && small + bytes <= SMALL_ROOM;
        move |before| passes && before.session == session && !before.is_small()
    }

    /// Returns whether nothing of its own session holds up the load at index `at`, which waits.
    fn session_lets(&self, at: usize) -> bool {
        let load = &self.loads[at];
        let is_own = |other: &Load| other.session == load.session;
        let passed = self.passed_by(at);
        let waits = |before: &Load| is_own(before) && !before.has_begun && !passed(before);
        let bytes = self.bytes_under_way(is_own) + load.bytes;
        let large = self.bytes_under_way(|other| is_own(other) && !other.is_small());
        let fits = load.is_small() || large + load.bytes <= LARGE_BYTES_MAX;
        fits && bytes <= SESSION_BYTES_MAX && !self.loads[..at].iter().any(waits)
    }

    fn bytes_under_way(&self, which: impl Fn(&Load) -> bool) -> u64 {
        let begun = self.loads.iter().filter(|load| load.has_begun);
        begun
            .filter(|load| which(load))
            .map(|load| load.bytes)
            .sum()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut queue = self.loads.queue.lock();
        queue.loads.retain(|load| load.number != self.number);
        drop(queue);
        self.loads.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: fn() -> bool = || false;

    fn now(loads: &Arc<Loads>, session: u64, bytes: u64) -> Result<UnderWay, Refusal> {
        loads.begin_within(Duration::ZERO, session, bytes, NEVER)
    }

    /// As many bytes as the large loads of a session may need.
    const MOST: u64 = LARGE_BYTES_MAX;
    const LARGE: u64 = SMALL_BYTES + 1;

    fn end(queue: &mut Queue, number: u64) {
        queue.loads.retain(|load| load.number != number);
    }

    #[test]
    fn loads_wait_for_their_session_and_for_all_others() {
        let loads = Arc::<Loads>::default();
        let both = [LARGE, MOST - LARGE].map(|bytes| now(&loads, 1, bytes).unwrap());
        drop(both);
        let first = now(&loads, 1, MOST).unwrap();
        assert_eq!(now(&loads, 1, LARGE).unwrap_err().status, Status::Busy);
        let middle = now(&loads, 2, BYTES_MAX - 2 * MOST + 1).unwrap();
        // Larger than all that there is: it counts as the largest.
        assert!(now(&loads, 3, u64::MAX).is_err());
        drop(middle);
        let third = now(&loads, 3, u64::MAX).unwrap();
        assert!(now(&loads, 4, BYTES_MAX - 2 * MOST + 1).is_err());
        drop(first);
        let again = now(&loads, 1, MOST).unwrap();
        drop((third, again));
        assert!(loads.queue.lock().loads.is_empty());
    }

    #[test]
    fn loads_begin_in_their_order_and_a_session_holds_up_only_itself() {
        let mut queue = Queue::default();
        let greedy = queue.join(1, MOST);
        assert!(queue.begin(greedy));
        let (more, last) = (queue.join(1, MOST), queue.join(1, LARGE));
        let (large, next) = (queue.join(2, MOST), queue.join(3, MOST));
        // What its session holds up does not hold up others; what comes later waits for its turn.
        assert!(!queue.begin(more) && !queue.begin(last));
        assert!(!queue.begin(next));
        assert!(queue.begin(large) && !queue.begin(next));
        end(&mut queue, greedy);
        assert!(!queue.begin(next) && !queue.begin(last));
        assert!(queue.begin(more) && !queue.begin(next));
        end(&mut queue, large);
        assert!(queue.begin(next) && !queue.begin(last));
        end(&mut queue, more);
        assert!(queue.begin(last));
    }

    #[test]
    fn small_loads_wait_for_no_large_one_of_their_session() {
        let mut queue = Queue::default();
        let large = queue.join(1, MOST);
        assert!(queue.begin(large));
        let waiting = queue.join(1, MOST);
        let count = SMALL_ROOM / SMALL_BYTES;
        let small: Vec<_> = (0..count).map(|_| queue.join(1, SMALL_BYTES)).collect();
        assert!(small.iter().all(|number| queue.begin(*number)));
        // More than these wait, or the large one that waits might never begin.
        let one_more = queue.join(1, 1);
        assert!(!queue.begin(one_more) && !queue.begin(waiting));
        // Another session has its half all the same.
        let others = [MOST, SMALL_BYTES].map(|bytes| queue.join(2, bytes));
        assert!(others.into_iter().all(|other| queue.begin(other)));
        end(&mut queue, large);
        assert!(!queue.begin(one_more) && queue.begin(waiting));
        end(&mut queue, small[0]);
        assert!(queue.begin(one_more));
    }

    #[test]
    fn a_load_that_waits_gives_up_with_its_session_or_begins_when_another_ends() {
        let loads = Arc::<Loads>::default();
        let first = loads.begin(1, MOST, NEVER).unwrap();
        let over = loads.begin(1, LARGE, || true).unwrap_err();
        assert_eq!(over.status, Status::DeviceLost);
        assert_eq!(loads.queue.lock().loads.len(), 1);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| loads.begin(1, LARGE, NEVER).is_ok());
            while loads.queue.lock().loads.len() < 2 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().unwrap());
        });
    }
}
