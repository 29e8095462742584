//! Shares out a device that executes work while it is submitted among the sessions on it.
//!
//! Before a session's consumer submits a kernel or a copy, it takes a turn, and tells from time to
//! time how much of the device it has used. One whose session is ahead of others, by weight, or of
//! its cap, waits, or goes on with units for which those others have no use ([`schedule`]). A
//! session that has neither a weight nor a cap takes no turns, and one that is alone with a weight
//! reads one word of memory before each piece of work. A back end whose queues run behind the
//! consumer, such as a GPU, shares out its time itself.

mod schedule;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::Usage;
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
    waiting: BTreeMap<u64, Thread>,
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
    /// Units for which the work of the last turn had a use; all of them before the first.
    width: u64,
    /// Units that the work of this turn may use, from 1 on.
    granted: u64,
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
        let units = u64::from(units).max(1);
        Arc::new(Self {
            state: Mutex::new(State {
                schedule: Schedule::new(units),
                waiting: BTreeMap::new(),
            }),
            units,
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
        if !waiting.is_empty() {
            let ready = schedule.may_go_on(now_ns);
            ready
                .filter_map(|number| waiting.get(&number))
                .for_each(Thread::unpark);
        }
        changed
    }

    /// Waits until turn `number` begins. If `gives_up` returns true first, the request is taken
    /// back. Returns how the turn began, and the units that it may use.
    fn wait(&self, number: u64, gives_up: impl Fn() -> bool) -> (Taken, u64) {
        let mut waits_since = None;
        loop {
            let begun = self.change(|state, now_ns| {
                let has_waited = waits_since.is_some();
                let begun = state.schedule.begin(number, has_waited, now_ns);
                match begun {
                    Begin::Now | Begin::OnSpare(_) => {
                        state.waiting.remove(&number);
                    }
                    Begin::Later(_) => {
                        state.waiting.entry(number).or_insert_with(thread::current);
                    }
                }
                match begun {
                    Begin::Now => Ok(self.units),
                    Begin::OnSpare(units) => Ok(units),
                    Begin::Later(at_ns) => Err(Duration::from_nanos(at_ns - now_ns)),
                }
            });
            let time = match begun {
                Err(time) => time,
                Ok(units) => {
                    let waited = waits_since.map(|since: Instant| since.elapsed());
                    return (waited.map_or(Taken::AtOnce, Taken::After), units);
                }
            };
            waits_since.get_or_insert_with(Instant::now);
            if gives_up() {
                self.change(|state, _| {
                    state.schedule.end(number, 0);
                    state.waiting.remove(&number);
                });
                return (Taken::Never, self.units);
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
        Self {
            width: member.arbiter.units,
            granted: member.arbiter.units,
            member,
            held: None,
        }
    }

    /// Returns the part of the device that `usage` is: nanoseconds of the whole device.
    pub fn device_ns(&self, usage: Usage) -> u64 {
        usage.busy_ns / self.member.arbiter.units
    }

    /// Returns how many units of the device work may use until the next [`Self::take`].
    pub fn granted_units(&self) -> u64 {
        self.granted
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
        let is_narrow = self.granted < arbiter.units;
        (is_set(share_percent) || is_narrow || is_compared())
            && self.held.is_none_or(|held| held.since.elapsed() >= QUANTUM)
    }

    /// Takes a turn, after the end of the one that the consumer has, whose work has taken `usage`.
    /// Waits until the session may go on, or until `gives_up` returns true.
    pub fn take(&mut self, usage: Usage, gives_up: impl Fn() -> bool) -> Taken {
        let held = self.release(usage);
        let arbiter = &self.member.arbiter;
        let used = (self.device_ns(usage), self.width);
        let number = arbiter.change(|state, _| match held {
            Some(number) => {
                state.schedule.renew(number, used);
                number
            }
            None => state.schedule.ask(self.member.number, self.width),
        });
        let (taken, units) = arbiter.wait(number, gives_up);
        self.granted = units;
        self.held = (taken != Taken::Never).then(|| Held {
            number,
            since: Instant::now(),
        });
        taken
    }

    /// Ends the turn, if the consumer has one, as [`Self::take`] does.
    pub fn end(&mut self, usage: Usage) {
        let used_ns = self.device_ns(usage);
        if let Some(number) = self.release(usage) {
            let change = |state: &mut State, _| state.schedule.end(number, used_ns);
            self.member.arbiter.change(change);
        }
    }

    /// Returns the number of the turn that the consumer has, which it has no longer, and notes for
    /// how many units its work had a use.
    fn release(&mut self, usage: Usage) -> Option<u64> {
        self.granted = self.member.arbiter.units;
        let held = self.held.take()?;
        let units = self.member.arbiter.units;
        self.width = match usage.width() {
            Some(width) if !usage.is_starved() => width.clamp(1, units),
            // Others would take from it what it has no use for, and more.
            Some(_) => units,
            None => self.width,
        };
        Some(held.number)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end(Usage::default());
    }
}

#[cfg(test)]
mod tests;
