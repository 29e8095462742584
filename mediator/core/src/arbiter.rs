//! Shares out a device that executes work while it is submitted among the sessions on it.
//!
//! Before a session's consumer submits a kernel or a copy, it takes a turn, and keeps it as long as
//! it has work and nobody else waits, or for half a millisecond. Turns are given in an order that
//! shares out the time by weight ([`schedule`]). A session that is alone takes no turns: it reads
//! one word of memory before each piece of work. A back end whose queues run behind the consumer,
//! such as a GPU, shares out its time itself.

mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use schedule::{Begin, Schedule};

/// Time after which a turn passes to a session that waits, at the end of a piece of work.
const QUANTUM: Duration = Duration::from_micros(500);
/// How often a consumer that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// How much of the device's time a session gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// Time in proportion to that of others that have work, from 1 to [`Self::WEIGHT_MAX`].
    pub weight: u32,
    /// Most of the device's time in percent, from 1 to 100, even if nobody else has work. `None` is
    /// no limit.
    pub share_percent: Option<u32>,
}

impl Compute {
    /// What a session has for which the user has chosen nothing.
    pub const DEFAULT: Self = Self {
        weight: 100,
        share_percent: None,
    };
    /// Largest weight.
    pub const WEIGHT_MAX: u32 = 10_000;
}

impl Default for Compute {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Gives sessions turns on the device.
#[derive(Debug)]
pub(crate) struct Arbiter {
    /// A leaf lock.
    state: Mutex<State>,
    /// Sessions that are open.
    members: AtomicU32,
    /// Whether somebody waits for a turn.
    is_waited_for: AtomicBool,
    began: Instant,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    /// Threads that wait, by the numbers of their turns.
    waiting: Vec<(u64, Thread)>,
}

/// A session's membership, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    arbiter: Arc<Arbiter>,
    number: u64,
    is_capped: bool,
}

/// The turns of one consumer. A drop ends its turn.
#[derive(Debug)]
pub(crate) struct Turns {
    member: Arc<Member>,
    held: Option<Held>,
}

/// How a consumer came to its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    AtOnce,
    After(Duration),
    /// It gave up before its turn came.
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    units: u64,
    since: Instant,
}

impl Arbiter {
    /// Returns an arbiter for a device of `units` units: cores that execute kernels.
    pub fn new(units: u32) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                schedule: Schedule::new(units.into()),
                waiting: Vec::new(),
            }),
            members: AtomicU32::new(0),
            is_waited_for: AtomicBool::new(false),
            began: Instant::now(),
        })
    }

    /// Makes a session a member.
    pub fn join(self: &Arc<Self>, compute: Compute) -> Arc<Member> {
        self.members.fetch_add(1, Ordering::SeqCst);
        Arc::new(Member {
            arbiter: Arc::clone(self),
            number: self.state.lock().schedule.join(compute),
            is_capped: compute.share_percent.is_some(),
        })
    }

    /// Changes the schedule, and wakes who is next.
    fn change<T>(&self, change: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.state.lock();
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let changed = change(&mut state, now_ns);
        let State { schedule, waiting } = &*state;
        self.is_waited_for
            .store(schedule.is_waited_for(), Ordering::Relaxed);
        let next = schedule.head(now_ns);
        let next = waiting.iter().find(|(number, _)| Some(*number) == next);
        if let Some((_, thread)) = next {
            thread.unpark();
        }
        changed
    }

    /// Waits until turn `number` begins. If `gives_up` returns true first, the request is taken
    /// back.
    fn wait(&self, number: u64, gives_up: impl Fn() -> bool) -> Taken {
        let mut waits_since = None;
        loop {
            let begun = self.change(|state, now_ns| {
                let begun = state.schedule.begin(number, now_ns);
                match begun {
                    Begin::Now => state.waiting.retain(|(waits, _)| *waits != number),
                    Begin::Later(_) if waits_since.is_none() => {
                        state.waiting.push((number, thread::current()));
                    }
                    Begin::Later(_) => {}
                }
                match begun {
                    Begin::Now => None,
                    Begin::Later(at_ns) => Some(Duration::from_nanos(at_ns - now_ns)),
                }
            });
            let Some(time) = begun else {
                let waited = waits_since.map(|since: Instant| since.elapsed());
                return waited.map_or(Taken::AtOnce, Taken::After);
            };
            waits_since.get_or_insert_with(Instant::now);
            if gives_up() {
                self.change(|state, now_ns| {
                    state.schedule.end(number, now_ns);
                    state.waiting.retain(|(waits, _)| *waits != number);
                });
                return Taken::Never;
            }
            thread::park_timeout(time.min(LOOK));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let number = self.number;
        self.arbiter.change(|state, _| state.schedule.leave(number));
        self.arbiter.members.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Turns {
    /// Returns the turns of a consumer of the session `member`, which has none yet.
    pub fn new(member: Arc<Member>) -> Self {
        Self { member, held: None }
    }

    /// Returns whether the consumer has to [`Self::take`] a turn before it submits work for `units`
    /// units of the device.
    pub fn is_due(&self, units: u64) -> bool {
        let Member {
            arbiter, is_capped, ..
        } = &*self.member;
        match self.held {
            None => *is_capped || arbiter.members.load(Ordering::Relaxed) > 1,
            Some(held) => {
                let ends = *is_capped || arbiter.is_waited_for.load(Ordering::Relaxed);
                units > held.units || (ends && held.since.elapsed() >= QUANTUM)
            }
        }
    }

    /// Takes a turn for `units` units of the device, after the end of the one that the consumer
    /// has. Waits until the turn comes, or until `gives_up` returns true.
    pub fn take(&mut self, units: u64, gives_up: impl Fn() -> bool) -> Taken {
        let arbiter = &self.member.arbiter;
        let held = self.held.take().map(|held| held.number);
        let number = arbiter.change(|state, now_ns| match held {
            Some(number) => {
                state.schedule.renew(number, units, now_ns);
                number
            }
            None => state.schedule.ask(self.member.number, units),
        });
        let taken = arbiter.wait(number, gives_up);
        self.held = (taken != Taken::Never).then(|| Held {
            number,
            units,
            since: Instant::now(),
        });
        taken
    }

    /// Ends the turn, if the consumer has one.
    pub fn end(&mut self) {
        if let Some(held) = self.held.take() {
            let change = |state: &mut State, now_ns| state.schedule.end(held.number, now_ns);
            self.member.arbiter.change(change);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: fn() -> bool = || false;

    fn turns(arbiter: &Arc<Arbiter>) -> Turns {
        Turns::new(arbiter.join(Compute::DEFAULT))
    }

    #[test]
    fn who_is_alone_takes_no_turns_unless_it_has_a_cap() {
        let arbiter = Arbiter::new(2);
        let first = turns(&arbiter);
        assert!(!first.is_due(2));
        let second = turns(&arbiter);
        assert!(first.is_due(2));
        drop(second);
        assert!(!first.is_due(2));
        drop(first);
        let capped = Compute {
            share_percent: Some(50),
            ..Compute::DEFAULT
        };
        assert!(Turns::new(arbiter.join(capped)).is_due(1));
    }

    #[test]
    fn a_turn_is_kept_until_others_wait_for_it() {
        let arbiter = Arbiter::new(2);
        let (mut first, mut second) = (turns(&arbiter), turns(&arbiter));
        assert_eq!(first.take(1, NEVER), Taken::AtOnce);
        assert_eq!(second.take(1, NEVER), Taken::AtOnce);
        assert!(first.is_due(2), "more units than it has");
        thread::sleep(QUANTUM);
        assert!(!first.is_due(1), "nobody waits");
        thread::scope(|scope| {
            let waits = scope.spawn(|| second.take(2, NEVER));
            while !arbiter.is_waited_for.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            assert!(first.is_due(1));
            first.end();
            assert!(matches!(waits.join().unwrap(), Taken::After(_)));
        });
        assert!(second.held.is_some());
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        let arbiter = Arbiter::new(1);
        let (mut first, mut second) = (turns(&arbiter), turns(&arbiter));
        assert_eq!(first.take(1, NEVER), Taken::AtOnce);
        assert_eq!(second.take(1, || true), Taken::Never);
        assert!(arbiter.state.lock().waiting.is_empty());
        assert!(!arbiter.is_waited_for.load(Ordering::Relaxed));
        first.end();
        assert_eq!(second.take(1, NEVER), Taken::AtOnce);
    }

    #[test]
    fn many_consumers_take_turns_and_none_sleeps_through_its_own() {
        let arbiter = Arbiter::new(2);
        let running = AtomicU32::new(0);
        thread::scope(|scope| {
            for units in [1, 2, 1, 2, 2, 1] {
                let mut turns = turns(&arbiter);
                let running = &running;
                scope.spawn(move || {
                    for _ in 0..300 {
                        assert_ne!(turns.take(units, NEVER), Taken::Never);
                        let before = running.fetch_add(units as u32, Ordering::SeqCst);
                        // More only if a turn was overdue, on a host that was busy elsewhere.
                        assert!(before < 1 << 16);
                        running.fetch_sub(units as u32, Ordering::SeqCst);
                        turns.end();
                    }
                });
            }
        });
        assert_eq!(running.load(Ordering::SeqCst), 0);
        assert!(arbiter.state.lock().waiting.is_empty());
    }
}
