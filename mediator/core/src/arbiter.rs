//! Shares out a device that executes work while it is submitted among the sessions on it.
//!
//! Before a session's consumer submits a kernel or a copy, it takes a turn, and tells from time to
//! time how much of the device it has used. One whose session is ahead of others, by weight, or of
//! its cap, waits ([`schedule`]). A session that has neither a weight nor a cap takes no
//! turns, and one that is alone with a weight reads one word of memory before each piece of work. A back end whose queues run behind the consumer, such as a
//! GPU, shares out its time itself.

mod schedule;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use schedule::{Begin, Schedule};

/// Time after which a consumer tells what it has used, at the end of a piece of work.
const QUANTUM: Duration = Duration::from_micros(500);
/// How often a consumer that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// How much of the device's time a session gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// Time in proportion to that of others that have a weight and work, in
    /// [`Self::WEIGHTS`]. `None`: the session waits for nobody, and nobody for it.
    pub weight: Option<u32>,
    /// Most of the device's time in percent, from 1 to 100, even if nobody else has work. `None` is
    /// no limit.
    pub share_percent: Option<u32>,
}

impl Compute {
    /// What a session has for which the user has chosen nothing.
    pub const DEFAULT: Self = Self {
        weight: None,
        share_percent: None,
    };
    /// What users may choose for [`Self::weight`].
    pub const WEIGHTS: RangeInclusive<u32> = 1..=Self::WEIGHT_MAX;
    /// What users may choose for [`Self::share_percent`].
    pub const SHARES_PERCENT: RangeInclusive<u32> = 1..=100;
    /// Largest weight.
    const WEIGHT_MAX: u32 = 10_000;
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
    units: u64,
    /// Open sessions with a weight.
    weighted: AtomicU32,
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
    /// What the session may have at present; 0 is none. They change only while the arbiter's state
    /// is locked.
    weight: AtomicU32,
    share_percent: AtomicU32,
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
    since: Instant,
}

impl Arbiter {
    /// Returns an arbiter for a device of `units` units: processor cores.
    pub fn new(units: u32) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                schedule: Schedule::default(),
                waiting: Vec::new(),
            }),
            units: u64::from(units).max(1),
            weighted: AtomicU32::new(0),
            began: Instant::now(),
        })
    }

    /// Makes a session a member.
    pub fn join(self: &Arc<Self>, compute: Compute) -> Arc<Member> {
        let member = Member {
            arbiter: Arc::clone(self),
            number: self.state.lock().schedule.join(Compute::DEFAULT),
            weight: AtomicU32::new(0),
            share_percent: AtomicU32::new(0),
        };
        member.change(|_| compute);
        Arc::new(member)
    }

    /// Changes the schedule, and wakes who may go on.
    fn change<T>(&self, change: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.state.lock();
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let changed = change(&mut state, now_ns);
        let State { schedule, waiting } = &*state;
        for (number, thread) in waiting {
            if schedule.may_go_on(*number, now_ns) {
                thread.unpark();
            }
        }
        changed
    }

    /// Waits until turn `number` begins. If `gives_up` returns true first, the request is taken
    /// back.
    fn wait(&self, number: u64, gives_up: impl Fn() -> bool) -> Taken {
        let mut waits_since = None;
        loop {
            let begun = self.change(|state, now_ns| {
                let has_waited = waits_since.is_some();
                let begun = state.schedule.begin(number, has_waited, now_ns);
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
                    state.schedule.end(number, 0, now_ns);
                    state.waiting.retain(|(waits, _)| *waits != number);
                });
                return Taken::Never;
            }
            thread::park_timeout(time.min(LOOK));
        }
    }
}

impl Member {
    /// Returns what the session may have at present.
    pub fn compute(&self) -> Compute {
        let load = |word: &AtomicU32| Some(word.load(Ordering::Relaxed)).filter(|n| *n != 0);
        Compute {
            weight: load(&self.weight),
            share_percent: load(&self.share_percent),
        }
    }

    /// Gives the session from now on what `change` makes of what it may have. What it has used
    /// counts as it did.
    pub fn change(&self, change: impl FnOnce(Compute) -> Compute) {
        self.arbiter.change(|state, _| {
            let compute = change(self.compute());
            state.schedule.set(self.number, compute);
            self.announce(compute);
        });
    }

    /// Tells consumers whether they have to take turns. Called with the arbiter's state locked.
    fn announce(&self, compute: Compute) {
        let (had_weight, has_weight) = (self.compute().weight, compute.weight);
        let weighted = &self.arbiter.weighted;
        weighted.fetch_add(has_weight.is_some().into(), Ordering::Relaxed);
        weighted.fetch_sub(had_weight.is_some().into(), Ordering::Relaxed);
        let store =
            |word: &AtomicU32, n: Option<u32>| word.store(n.unwrap_or(0), Ordering::Relaxed);
        store(&self.weight, has_weight);
        store(&self.share_percent, compute.share_percent);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.arbiter.change(|state, _| {
            state.schedule.leave(self.number);
            self.announce(Compute::DEFAULT);
        });
    }
}

impl Turns {
    /// Returns the turns of a consumer of the session `member`, which has none yet.
    pub fn new(member: Arc<Member>) -> Self {
        Self { member, held: None }
    }

    /// Returns the number of units of the device, at least 1.
    pub fn units(&self) -> u64 {
        self.member.arbiter.units
    }

    /// Returns whether the consumer has to [`Self::take`] a turn before it submits more work.
    pub fn is_due(&self) -> bool {
        let Member {
            arbiter,
            weight,
            share_percent,
            ..
        } = &*self.member;
        let is_set = |word: &AtomicU32| word.load(Ordering::Relaxed) != 0;
        let is_compared = || is_set(weight) && arbiter.weighted.load(Ordering::Relaxed) > 1;
        (is_set(share_percent) || is_compared())
            && self.held.is_none_or(|held| held.since.elapsed() >= QUANTUM)
    }

    /// Takes a turn, after the end of the one that the consumer has, in which it has used the whole
    /// device for `used_ns` nanoseconds. Waits until the session may go on, or until
    /// `gives_up` returns true.
    pub fn take(&mut self, used_ns: u64, gives_up: impl Fn() -> bool) -> Taken {
        let arbiter = &self.member.arbiter;
        let held = self.held.take().map(|held| held.number);
        let number = arbiter.change(|state, now_ns| match held {
            Some(number) => {
                state.schedule.renew(number, used_ns, now_ns);
                number
            }
            None => state.schedule.ask(self.member.number),
        });
        let taken = arbiter.wait(number, gives_up);
        self.held = (taken != Taken::Never).then(|| Held {
            number,
            since: Instant::now(),
        });
        taken
    }

    /// Ends the turn, if the consumer has one, as [`Self::take`] does.
    pub fn end(&mut self, used_ns: u64) {
        if let Some(Held { number, .. }) = self.held.take() {
            let change = |state: &mut State, now_ns| state.schedule.end(number, used_ns, now_ns);
            self.member.arbiter.change(change);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: fn() -> bool = || false;

    fn turns(arbiter: &Arc<Arbiter>) -> Turns {
        Turns::new(arbiter.join(Compute {
            weight: Some(100),
            ..Compute::DEFAULT
        }))
    }

    #[test]
    fn who_is_alone_takes_no_turns_unless_it_has_a_cap() {
        let arbiter = Arbiter::new(2);
        let first = turns(&arbiter);
        assert!(!first.is_due());
        let second = turns(&arbiter);
        assert!(first.is_due());
        drop(second);
        let usual = Turns::new(arbiter.join(Compute::DEFAULT));
        assert!(!first.is_due() && !usual.is_due());
        drop(first);
        let capped = Compute {
            share_percent: Some(50),
            ..Compute::DEFAULT
        };
        assert!(Turns::new(arbiter.join(capped)).is_due());
    }

    #[test]
    fn what_a_session_may_have_changes_while_it_works_and_while_it_waits() {
        let arbiter = Arbiter::new(2);
        let (first, mut second) = (turns(&arbiter), turns(&arbiter));
        second.member.change(|_| Compute::DEFAULT);
        assert!(!first.is_due() && !second.is_due(), "one weight is none");
        let capped = Compute {
            share_percent: Some(1),
            ..Compute::DEFAULT
        };
        second.member.change(|_| capped);
        assert_eq!(second.member.compute(), capped);
        assert!(second.is_due());
        assert_eq!(second.take(0, NEVER), Taken::AtOnce);
        let member = Arc::clone(&second.member);
        thread::scope(|scope| {
            let waits = scope.spawn(|| second.take(MUCH_NS, NEVER));
            while arbiter.state.lock().waiting.is_empty() {
                thread::yield_now();
            }
            member.change(|_| Compute::DEFAULT);
            assert!(matches!(waits.join().unwrap(), Taken::After(_)));
        });
        assert!(!second.is_due());
    }

    /// More than a session may be ahead.
    const MUCH_NS: u64 = 1_000_000_000;

    #[test]
    fn who_is_ahead_waits_until_the_other_has_no_work() {
        let arbiter = Arbiter::new(2);
        let (mut first, mut second) = (turns(&arbiter), turns(&arbiter));
        assert_eq!(first.take(0, NEVER), Taken::AtOnce);
        assert_eq!(second.take(0, NEVER), Taken::AtOnce);
        assert!(!first.is_due());
        thread::sleep(QUANTUM);
        assert!(first.is_due(), "it tells what it has used");
        second.end(0);
        assert_eq!(first.take(MUCH_NS, NEVER), Taken::AtOnce, "it is alone");
        // The other one now begins where the first one is, but for a little.
        assert_eq!(second.take(0, NEVER), Taken::AtOnce);
        assert_eq!(second.take(MUCH_NS, || true), Taken::Never);
        assert!(arbiter.state.lock().waiting.is_empty());
        thread::scope(|scope| {
            let waits = scope.spawn(|| second.take(0, NEVER));
            while arbiter.state.lock().waiting.is_empty() {
                thread::yield_now();
            }
            first.end(0);
            assert!(matches!(waits.join().unwrap(), Taken::After(_)));
        });
        assert!(second.held.is_some());
    }

    #[test]
    fn many_consumers_take_turns_and_none_sleeps_for_ever() {
        let arbiter = Arbiter::new(2);
        thread::scope(|scope| {
            for used_ns in [1, 2_000_000, 9_000_000, 2_000_000, 1, 20_000_000] {
                let mut turns = turns(&arbiter);
                scope.spawn(move || {
                    for round in 0..100 {
                        assert_ne!(turns.take(used_ns, NEVER), Taken::Never);
                        if round % 3 == 0 {
                            turns.end(used_ns);
                        }
                    }
                });
            }
        });
        assert!(arbiter.state.lock().waiting.is_empty());
    }
}
