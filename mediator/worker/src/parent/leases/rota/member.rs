//! One session of a rota.

use causeway_mediator::{Compute, LeaseReport};

use super::{CREDIT_NS, LEAD_NS};

/// How long a GPU works for one context before it turns to another one that has work.
pub(super) const SLICE_NS: u64 = 2_000_000;
/// How long a session that is to stop may take to say that it has.
pub(super) const PATIENCE_NS: u64 = 5_000_000;
/// How much time of the device a session with a cap may save up, and how much it may owe.
const SAVINGS_NS: i64 = 20_000_000;
const DEBT_NS: i64 = 1_000_000_000;
/// Savings are kept in hundredths of nanoseconds, because caps are percentages.
const HUNDRED: i64 = 100;

#[derive(Debug)]
pub(super) struct Member {
    pub compute: Compute,
    /// Whether the session is open: then others take turns with it.
    pub is_open: bool,
    /// Whether anybody hears its orders.
    pub is_present: bool,
    /// Whether it was told to ask for leases.
    pub asks: bool,
    pub phase: Phase,
    /// Whether it has asked for the next lease.
    pub wants: bool,
    /// Whether it has had less than its share until it asked.
    pub is_fresh: bool,
    /// Number of its lease, or of the last one.
    pub number: u32,
    /// Its virtual time. In 64 bits, that of a small weight would fit for three weeks.
    pub taken: u128,
    /// Time of the device that it has had while others waited, or under a cap.
    pub used_ns: u64,
    /// Time of the device that its cap leaves it, times [`HUNDRED`].
    savings: i64,
    /// Whether its cap makes it wait.
    is_capped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has no lease, and no work under way.
    Idle,
    /// It has a lease, which is to end at this time, once others wait.
    Holds(Option<u64>),
    /// It submits nothing more, but has work under way, since this time.
    Stopped(u64),
}

impl Member {
    /// Returns a session whose virtual time is `taken`.
    pub fn new(compute: Compute, taken: u128) -> Self {
        Self {
            compute,
            is_open: true,
            is_present: false,
            asks: false,
            phase: Phase::Idle,
            wants: false,
            is_fresh: false,
            number: 0,
            taken,
            used_ns: 0,
            savings: SAVINGS_NS * HUNDRED,
            is_capped: false,
        }
    }

    /// Forgets what its last process said.
    pub fn restart(&mut self) {
        (self.asks, self.wants, self.is_fresh) = (false, false, false);
        self.phase = Phase::Idle;
    }

    /// Changes what the session may have. `clock` is the virtual time at which it begins to have a
    /// weight.
    pub fn set(&mut self, compute: Compute, clock: u128) {
        if self.compute.weight.is_none() {
            self.taken = clock;
        }
        if self.compute.share_percent != compute.share_percent {
            (self.savings, self.is_capped) = (SAVINGS_NS * HUNDRED, false);
        }
        self.compute = compute;
    }

    /// Notes what the session has reported. `floor` is the virtual time of the session furthest
    /// behind. Returns false if it means nothing now.
    pub fn told(&mut self, report: LeaseReport, floor: u128, now_ns: u64) -> bool {
        match (report, self.phase) {
            (LeaseReport::Wanted, phase) if !self.wants => {
                self.wants = true;
                let least = floor.saturating_sub(self.virtual_time(CREDIT_NS));
                self.is_fresh = phase == Phase::Idle && self.taken < least;
                self.taken = match phase {
                    Phase::Idle => self.taken.max(least),
                    Phase::Holds(_) | Phase::Stopped(_) => self.taken,
                };
            }
            (LeaseReport::Stopped(number), Phase::Holds(_)) if number == self.number => {
                self.phase = Phase::Stopped(now_ns);
            }
            (LeaseReport::Returned(number), Phase::Holds(_) | Phase::Stopped(_))
                if number == self.number =>
            {
                self.phase = Phase::Idle;
            }
            _ => return false,
        }
        true
    }

    /// Whether it may have work under way.
    pub fn is_active(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Whether its last work is under way, which the device does before that of others.
    pub fn is_ending(&self, now_ns: u64) -> bool {
        matches!(self.phase, Phase::Stopped(since_ns) if now_ns < since_ns.saturating_add(SLICE_NS))
    }

    /// Whether it has the device as one of those that have it in turn.
    pub fn is_holder(&self) -> bool {
        matches!(self.phase, Phase::Holds(_)) && self.compute.weight.is_some()
    }

    /// Whether it waits for a lease, and not for its cap, nor for the end of its last work. It does
    /// not wait for that for long: its last work may be waiting for what comes next.
    pub fn waits(&self, now_ns: u64) -> bool {
        self.wants && !self.is_capped && self.may_begin_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// Returns from when on the end of its last work does not matter; `None` if it has a lease.
    fn may_begin_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Idle => Some(0),
            Phase::Holds(_) => None,
            Phase::Stopped(0) => Some(0),
            Phase::Stopped(since_ns) => Some(since_ns.saturating_add(PATIENCE_NS)),
        }
    }

    /// Returns what `device_ns` nanoseconds of the device are as virtual time of this session.
    pub fn virtual_time(&self, device_ns: u64) -> u128 {
        let weight = self.compute.weight.unwrap_or(1).max(1);
        u128::from(device_ns) * u128::from(*Compute::WEIGHTS.end()) / u128::from(weight)
    }

    /// Charges the session for `used_ns` nanoseconds of the device. If it `is_alone`, no other
    /// session waited for the device.
    pub fn charge(&mut self, used_ns: u64, is_alone: bool) {
        if !is_alone || self.compute.share_percent.is_some() {
            self.used_ns = self.used_ns.saturating_add(used_ns);
        }
        self.taken = self.taken.saturating_add(self.virtual_time(used_ns));
        if self.compute.share_percent.is_some() {
            let used = i64::try_from(used_ns).unwrap_or(i64::MAX);
            let left = self.savings.saturating_sub(used.saturating_mul(HUNDRED));
            self.savings = left.max(-DEBT_NS * HUNDRED);
            self.is_capped |= self.savings <= 0;
        }
    }

    /// Adds what the session's cap gives it in `passed_ns`.
    pub fn save(&mut self, passed_ns: u64) {
        if let Some(percent) = self.compute.share_percent {
            let passed = i64::try_from(passed_ns).unwrap_or(i64::MAX);
            let saved = self
                .savings
                .saturating_add(passed.saturating_mul(percent.into()));
            self.savings = saved.min(SAVINGS_NS * HUNDRED);
            self.is_capped &= self.savings < SAVINGS_NS * HUNDRED / 2;
        }
    }

    /// Returns when the session, which wants a lease, begins to wait for one; `None` if it does
    /// already, or has one.
    pub fn waits_from_ns(&self, now_ns: u64) -> Option<u64> {
        let after_work_ns = self.may_begin_ns()?;
        let after_cap_ns = self.capped_until_ns(now_ns).unwrap_or(0);
        Some(after_work_ns.max(after_cap_ns)).filter(|at_ns| *at_ns > now_ns)
    }

    /// Returns when the session's cap lets it have the device again; `None` if it does.
    fn capped_until_ns(&self, now_ns: u64) -> Option<u64> {
        let percent = self.compute.share_percent.filter(|_| self.is_capped)?;
        let lacking = u64::try_from(SAVINGS_NS * HUNDRED / 2 - self.savings).unwrap_or(0);
        Some(now_ns + lacking.div_ceil(u64::from(percent.max(1))).max(1))
    }

    /// Returns when the session has used up what its cap leaves it, if it has a cap and goes on.
    pub fn cap_due_ns(&self, now_ns: u64) -> Option<u64> {
        self.compute.share_percent?;
        Some(now_ns + u64::try_from(self.savings / HUNDRED).unwrap_or(0))
    }

    /// Returns when the session, which has the device, is to stop for one that waits.
    pub fn due_for(&self, other: &Waiting, now_ns: u64) -> u64 {
        if other.is_fresh {
            return now_ns;
        }
        let end = other.taken.saturating_add(self.virtual_time(LEAD_NS));
        let left_ns = end.saturating_sub(self.taken) / self.virtual_time(1);
        now_ns.saturating_add(u64::try_from(left_ns).unwrap_or(u64::MAX))
    }

    /// Returns when others wait no longer for the session to stop.
    pub fn late_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Holds(due_ns) => due_ns.map(|due_ns| due_ns.saturating_add(PATIENCE_NS)),
            Phase::Idle | Phase::Stopped(_) => None,
        }
    }
}

/// A session that waits, as those see it that have the device. They are in the order in which they
/// may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    pub taken: u128,
    pub session: u64,
    pub is_fresh: bool,
}

#[cfg(test)]
mod tests;
