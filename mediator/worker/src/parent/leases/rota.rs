//! Who has the device next, and for how long: fair queueing by weights, one session at a time.
//!
//! Each session has taken some time of the device, divided by its weight: its *virtual time*. The
//! session that is furthest behind has the device, until it is [`LEAD_NS`] ahead of one that waits.
//! Then it submits nothing more, and the next one begins while the last work of the one before is
//! under way, so that the device never waits for a hand-over. That time counts for the one before.
//! If it lasts for longer than [`SLICE_NS`], time counts for all that have work under way in equal
//! parts, because that is how a GPU divides itself between contexts. Nobody waits for work that
//! does not end.
//!
//! Times are nanoseconds on the clock of the caller.

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_mediator::{Compute, LeaseOrder, LeaseReport};

/// How far a session gets ahead of one that waits, as its own time of the device: the least that it
/// has at once.
const LEAD_NS: u64 = 6_000_000;
/// How far a session that had no work may begin behind the one furthest behind, as time of the
/// session with the largest weight. It is more than the lead, so that such a session goes first at
/// once: a program that waits for each of its kernels is without work between them.
const CREDIT_NS: u64 = LEAD_NS * 3 / 2;
/// How long a GPU works for one context before it turns to another one that has work.
const SLICE_NS: u64 = 2_000_000;
/// How long a session that is to stop may take to say that it has.
const PATIENCE_NS: u64 = 5_000_000;
/// How much time of the device a session with a cap may save up.
const SAVINGS_NS: i64 = 20_000_000;

/// Sessions, and what each does.
#[derive(Debug, Default)]
pub(super) struct Rota {
    members: BTreeMap<u64, Member>,
    /// Up to when time was counted.
    at_ns: u64,
    /// The virtual time of the session that was furthest behind. It only grows.
    clock: u64,
}

#[derive(Debug)]
struct Member {
    compute: Compute,
    /// Whether anybody hears its orders.
    is_present: bool,
    /// Whether it was told to ask for leases.
    asks: bool,
    phase: Phase,
    /// Its virtual time.
    taken: u64,
    /// Time of the device that it has had while others waited, or under a cap.
    used_ns: u64,
    /// Time of the device that its cap leaves it.
    savings_ns: i64,
    /// Whether its cap makes it wait.
    is_capped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// It has work, and waits.
    Wants,
    Holds(Turn),
    /// It submits nothing more, but has work under way, since this time.
    Stopped(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// When it is to end, once others wait.
    due_ns: Option<u64>,
}

impl Rota {
    /// Makes a session a member, which nobody can tell anything yet.
    pub fn join(&mut self, number: u64, compute: Compute) {
        let member = Member {
            compute,
            is_present: false,
            asks: false,
            phase: Phase::Idle,
            taken: self.clock,
            used_ns: 0,
            savings_ns: SAVINGS_NS,
            is_capped: false,
        };
        self.members.insert(number, member);
    }

    pub fn leave(&mut self, number: u64) {
        self.members.remove(&number);
    }

    /// Notes that a process has begun or ended to serve the session. It has no work yet.
    pub fn set_present(&mut self, number: u64, is_present: bool) {
        if let Some(member) = self.members.get_mut(&number) {
            member.is_present = is_present;
            member.asks = false;
            member.phase = Phase::Idle;
        }
    }

    /// Changes what a session may have. What it has used counts by its new weight only from now on,
    /// and not towards a new cap.
    pub fn set(&mut self, number: u64, compute: Compute) {
        let clock = self.clock;
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        if member.compute.weight.is_none() {
            member.taken = clock;
        }
        if member.compute.share_percent != compute.share_percent {
            (member.savings_ns, member.is_capped) = (SAVINGS_NS, false);
        }
        member.compute = compute;
    }

    /// Returns what a session may have; the default if it is no member.
    pub fn compute(&self, number: u64) -> Compute {
        let member = self.members.get(&number);
        member.map_or(Compute::DEFAULT, |member| member.compute)
    }

    /// Returns the time of the device that a session has had while others waited for it, or under a
    /// cap.
    pub fn used_ns(&self, number: u64) -> u64 {
        self.members.get(&number).map_or(0, |member| member.used_ns)
    }

    /// Notes what a session has reported. What it cannot be reporting is ignored: a process may
    /// have been taken over.
    pub fn told(&mut self, number: u64, report: LeaseReport, now_ns: u64) {
        self.advance(now_ns);
        let floor = self.floor();
        let least = floor.saturating_sub(CREDIT_NS.saturating_mul(self.scale()));
        let Some(member) = self.members.get_mut(&number).filter(|it| it.asks) else {
            return;
        };
        match (report, member.phase) {
            (LeaseReport::Wanted, Phase::Idle) => {
                member.phase = Phase::Wants;
                member.taken = member.taken.max(least);
            }
            (LeaseReport::Stopped, Phase::Holds(_)) => member.phase = Phase::Stopped(now_ns),
            (LeaseReport::Returned, Phase::Holds(_) | Phase::Stopped(_)) => {
                member.phase = Phase::Idle;
            }
            _ => {}
        }
    }

    /// Decides what sessions are told at this time, in order. Also returns when to decide again if
    /// nobody reports anything before.
    pub fn decide(&mut self, now_ns: u64) -> (Vec<(u64, LeaseOrder)>, Option<u64>) {
        self.advance(now_ns);
        let mut orders = Vec::new();
        self.set_modes(&mut orders);
        self.give_up_on_late_ones(now_ns);
        self.grant(&mut orders);
        self.ask_back(now_ns, &mut orders);
        (orders, self.next_ns(now_ns))
    }

    /// Tells those for whom it has changed whether they need leases.
    fn set_modes(&mut self, orders: &mut Vec<(u64, LeaseOrder)>) {
        let present = || self.members.values().filter(|member| member.is_present);
        let weighted = present().filter(|it| it.compute.weight.is_some()).count();
        for (number, member) in &mut self.members {
            let Compute {
                weight,
                share_percent,
            } = member.compute;
            let asks = share_percent.is_some() || weight.is_some() && weighted > 1;
            if member.is_present && asks != member.asks {
                member.asks = asks;
                member.phase = Phase::Idle;
                orders.push((
                    *number,
                    match asks {
                        true => LeaseOrder::Ask,
                        false => LeaseOrder::Free,
                    },
                ));
            }
        }
    }

    /// Waits no longer for sessions that have not said that they stopped.
    fn give_up_on_late_ones(&mut self, now_ns: u64) {
        for member in self.members.values_mut() {
            if member.late_ns().is_some_and(|late_ns| late_ns <= now_ns) {
                member.phase = Phase::Stopped(0);
            }
        }
    }

    /// Gives the device to the session furthest behind if no other one has it. A session without a
    /// weight waits for nobody, but for its cap.
    fn grant(&mut self, orders: &mut Vec<(u64, LeaseOrder)>) {
        let is_held = self.members.values().any(Member::is_holder);
        let first = (!is_held).then(|| self.furthest_behind()).flatten();
        let first = first.map(|(_, number)| number);
        for (number, member) in &mut self.members {
            let is_next = Some(*number) == first || member.compute.weight.is_none();
            if is_next && member.waits() {
                member.phase = Phase::Holds(Turn { due_ns: None });
                orders.push((*number, LeaseOrder::Grant));
            }
        }
    }

    /// Asks sessions that have the device for it: for others that wait, and because of their caps.
    fn ask_back(&mut self, now_ns: u64, orders: &mut Vec<(u64, LeaseOrder)>) {
        let behind = self.furthest_behind().map(|(taken, _)| taken);
        for (number, member) in &mut self.members {
            let Phase::Holds(turn) = member.phase else {
                continue;
            };
            let for_others = behind.filter(|_| member.compute.weight.is_some());
            let for_others = for_others.map(|taken| member.due_for(taken, now_ns));
            let for_cap = member.cap_due_ns(now_ns);
            let wanted = for_others.into_iter().chain(for_cap).min();
            // A change by little is not worth a message.
            let is_earlier = |due_ns: &u64| {
                turn.due_ns
                    .is_none_or(|before| before > due_ns + LEAD_NS / 50)
            };
            if let Some(due_ns) = wanted.filter(is_earlier) {
                member.phase = Phase::Holds(Turn {
                    due_ns: Some(due_ns),
                });
                let within = Duration::from_nanos(due_ns - now_ns);
                orders.push((*number, LeaseOrder::Return(within)));
            }
        }
    }

    /// Returns when something changes though nobody reports anything.
    fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let members = self.members.values();
        let times = members.filter_map(|member| match member.phase {
            Phase::Holds(_) => member.late_ns(),
            Phase::Wants => member.ready_ns(now_ns),
            Phase::Idle | Phase::Stopped(_) => None,
        });
        times.min()
    }

    /// Counts the time since the last call for those that have work under way. One that has the
    /// device and for which nobody waits may have no work, and says nothing: it has taken nothing
    /// from anybody.
    fn advance(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let now_ns = self.at_ns;
        let count = |counts: fn(&Member, u64) -> bool| {
            let members = self.members.values();
            members.filter(|member| counts(member, now_ns)).count() as u64
        };
        let (ending, active) = (count(Member::is_ending), count(|it, _| it.is_active()));
        let is_alone = active == 1 && count(|it, _| it.waits()) == 0;
        for member in self.members.values_mut() {
            member.save(passed_ns);
            if is_alone && member.compute.share_percent.is_none() {
                continue;
            }
            if ending != 0 && member.is_ending(now_ns) {
                member.charge(passed_ns / ending);
            } else if ending == 0 && member.is_active() {
                member.charge(passed_ns / active);
            }
        }
        self.clock = self.floor();
    }

    /// Returns the virtual time of the session furthest behind, of those that have or want the
    /// device; the last one if there is none.
    fn floor(&self) -> u64 {
        let counts = |member: &&Member| {
            member.compute.weight.is_some() && (member.waits() || member.is_holder())
        };
        let counted = self.members.values().filter(counts);
        let least = counted.map(|member| member.taken).min();
        least.map_or(self.clock, |least| least.max(self.clock))
    }

    /// Returns virtual time and number of the session furthest behind, of those with a weight that
    /// wait and may have the device.
    fn furthest_behind(&self) -> Option<(u64, u64)> {
        let members = self.members.iter();
        members
            .filter(|(_, member)| member.compute.weight.is_some() && member.waits())
            .map(|(number, member)| (member.taken, *number))
            .min()
    }

    /// Returns what a nanosecond of the device is as virtual time of the session with the largest
    /// weight.
    fn scale(&self) -> u64 {
        let members = self.members.values();
        members
            .map(|member| member.virtual_time(1))
            .min()
            .unwrap_or(1)
    }
}

impl Member {
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Holds(_) | Phase::Stopped(_))
    }

    /// Whether its last work is under way, which the device does before that of others.
    fn is_ending(&self, now_ns: u64) -> bool {
        matches!(self.phase, Phase::Stopped(since_ns) if now_ns < since_ns + SLICE_NS)
    }

    /// Whether it has the device as one of those that have it in turn.
    fn is_holder(&self) -> bool {
        matches!(self.phase, Phase::Holds(_)) && self.compute.weight.is_some()
    }

    /// Whether it waits, and not for its cap.
    fn waits(&self) -> bool {
        self.phase == Phase::Wants && !self.is_capped
    }

    /// Returns what `device_ns` nanoseconds of the device are as virtual time of this session.
    fn virtual_time(&self, device_ns: u64) -> u64 {
        let weight = u64::from(self.compute.weight.unwrap_or(1).max(1));
        device_ns.saturating_mul((*Compute::WEIGHTS.end()).into()) / weight
    }

    fn charge(&mut self, used_ns: u64) {
        self.used_ns = self.used_ns.saturating_add(used_ns);
        self.taken = self.taken.saturating_add(self.virtual_time(used_ns));
        if self.compute.share_percent.is_some() {
            let used_ns = i64::try_from(used_ns).unwrap_or(i64::MAX);
            self.savings_ns = self.savings_ns.saturating_sub(used_ns);
            self.is_capped |= self.savings_ns <= 0;
        }
    }

    /// Adds what the session's cap gives it in `passed_ns`.
    fn save(&mut self, passed_ns: u64) {
        if let Some(percent) = self.compute.share_percent {
            let part_ns = passed_ns.saturating_mul(percent.into()) / 100;
            let part_ns = i64::try_from(part_ns).unwrap_or(i64::MAX);
            self.savings_ns = self.savings_ns.saturating_add(part_ns).min(SAVINGS_NS);
            self.is_capped &= self.savings_ns < SAVINGS_NS / 2;
        }
    }

    /// Returns when the session's cap lets it have the device again; `None` if it does.
    fn ready_ns(&self, now_ns: u64) -> Option<u64> {
        let percent = self.compute.share_percent.filter(|_| self.is_capped)?;
        let lacking_ns = u64::try_from(SAVINGS_NS / 2 - self.savings_ns).unwrap_or(0);
        // Not a little too early because of the division.
        Some(now_ns + lacking_ns.saturating_mul(100) / u64::from(percent.max(1)) + 1000)
    }

    /// Returns when the session has used up what its cap leaves it, if it has a cap and goes on.
    fn cap_due_ns(&self, now_ns: u64) -> Option<u64> {
        self.compute.share_percent?;
        Some(now_ns + u64::try_from(self.savings_ns).unwrap_or(0))
    }

    /// Returns when the session, which has the device, is to stop for one whose virtual time is
    /// `taken`.
    fn due_for(&self, taken: u64, now_ns: u64) -> u64 {
        let end = taken.saturating_add(self.virtual_time(LEAD_NS));
        now_ns + end.saturating_sub(self.taken) / self.virtual_time(1)
    }

    /// Returns when others wait no longer for the session to stop.
    fn late_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Holds(turn) => turn.due_ns.map(|due_ns| due_ns + PATIENCE_NS),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
