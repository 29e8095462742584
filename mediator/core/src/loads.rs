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
/// Bytes that the loads of one session need at most, so that two sessions can load at any time. A
/// larger load counts as one of this size.
const SESSION_BYTES_MAX: u64 = BYTES_MAX / 2;
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

/// A load under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    loads: Arc<Loads>,
    number: u64,
}

impl Loads {
    /// Begins a load of `session` that needs `bytes` bytes, or waits until it can begin. Loads
    /// begin in the order in which they came, except that one which waits for its own session holds
    /// up no other session.
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
        let number = queue.join(session, bytes.min(SESSION_BYTES_MAX));
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
        let waits = |other: usize| !self.loads[other].has_begun;
        let is_next = !(0..at).any(|other| waits(other) && self.session_lets(other));
        let bytes = self.bytes_under_way(|_| true) + self.loads[at].bytes;
        let begins = is_next && self.session_lets(at) && bytes <= BYTES_MAX;
        self.loads[at].has_begun = begins;
        begins
    }

    /// Returns whether nothing of its own session holds up the load at index `at`, which waits.
    fn session_lets(&self, at: usize) -> bool {
        let load = &self.loads[at];
        let own = |other: &&Load| other.session == load.session;
        let is_first = self.loads[..at].iter().filter(own).all(|o| o.has_begun);
        let bytes = self.bytes_under_way(|other| other.session == load.session) + load.bytes;
        is_first && bytes <= SESSION_BYTES_MAX
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

    #[test]
    fn loads_wait_for_their_session_and_for_all_others() {
        let loads = Arc::<Loads>::default();
        let half = SESSION_BYTES_MAX;
        let first = now(&loads, 1, half).unwrap();
        assert_eq!(now(&loads, 1, 1).unwrap_err().status, Status::Busy);
        let small = now(&loads, 2, 1).unwrap();
        // Larger than all that there is: it counts as half.
        assert!(now(&loads, 3, u64::MAX).is_err());
        drop(small);
        let third = now(&loads, 3, u64::MAX).unwrap();
        assert!(now(&loads, 4, 1).is_err());
        drop(first);
        let again = now(&loads, 1, half).unwrap();
        drop((third, again));
        assert!(loads.queue.lock().loads.is_empty());
    }

    #[test]
    fn loads_begin_in_their_order_and_a_session_holds_up_only_itself() {
        let mut queue = Queue::default();
        let (half, most) = (SESSION_BYTES_MAX, BYTES_MAX);
        let greedy = queue.join(1, half);
        assert!(queue.begin(greedy));
        let more = queue.join(1, half);
        let tiny = queue.join(1, 0);
        let (large, small) = (queue.join(2, half), queue.join(3, most - half));
        // What its session holds up does not hold up others; what comes later waits for its turn.
        assert!(!queue.begin(more) && !queue.begin(tiny));
        assert!(!queue.begin(small));
        assert!(queue.begin(large) && !queue.begin(small));
        queue.loads.retain(|load| load.number != greedy);
        assert!(!queue.begin(small) && !queue.begin(tiny));
        assert!(queue.begin(more) && !queue.begin(small));
        queue.loads.retain(|load| load.number != large);
        assert!(queue.begin(tiny) && queue.begin(small));
    }

    #[test]
    fn a_load_that_waits_gives_up_with_its_session_or_begins_when_another_ends() {
        let loads = Arc::<Loads>::default();
        let first = loads.begin(1, SESSION_BYTES_MAX, NEVER).unwrap();
        let over = loads.begin(1, 1, || true).unwrap_err();
        assert_eq!(over.status, Status::DeviceLost);
        assert_eq!(loads.queue.lock().loads.len(), 1);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| loads.begin(1, 1, NEVER).is_ok());
            while loads.queue.lock().loads.len() < 2 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().unwrap());
        });
    }
}
