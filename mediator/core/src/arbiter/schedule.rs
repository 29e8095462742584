//! Who may go on: fair queueing by weights, with a lead.
//!
//! Each session has taken some time of the device, divided by its weight: its *virtual time*.
//! Sessions run at the same time, so that no unit of the device is idle while one hands over to
//! another; one that is ahead of the one furthest behind waits until that one has caught up.
//! Meanwhile it may have units for which those with turns have no use: a kernel of few blocks
//! cannot use the whole device. Times on the clock are nanoseconds, which the caller reads.

use std::collections::BTreeMap;

use super::Compute;

/// How far the session with the largest weight may be ahead, in nanoseconds of the whole device;
/// others may be ahead by as much virtual time, so that all are right within the same part of their
/// share.
const LEAD_NS: u64 = 20_000_000;
/// The same for a session that has waited and goes on, so that it does not wait again at once.
const LEAD_AFTER_WAIT_NS: u64 = LEAD_NS / 2;
/// Nobody waits for a session whose turn has lasted longer: a kernel that never ends must not stop
/// everybody. It is charged for what it took when it ends.
pub(super) const OVERDUE_NS: u64 = 20_000_000;
/// How much a session that had no work may make up for, in the same way. A program that waits for
/// each of its kernels is without work for some microseconds after each of them, and must not lose
/// its share to those that never wait.
const CREDIT_NS: u64 = LEAD_NS / 4;
/// How much of its cap a session may make up for, as time on the clock.
const SLACK_NS: u64 = 20_000_000;

/// Turns that are asked for and turns under way.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Units of the device.
    units: u64,
    members: BTreeMap<u64, Member>,
    turns: Vec<Turn>,
    /// The virtual time of the session that was furthest behind. It only grows.
    clock: u128,
    /// The largest virtual time that a session had of spare units when it took some.
    spare_clock: u128,
    next: u64,
}

/// A session.
#[derive(Debug)]
struct Member {
    compute: Compute,
    /// Its virtual time. In 64 bits, that of a small weight would fit for three weeks.
    taken: u128,
    /// The same of spare units, which counts only among those that wait for them.
    taken_spare: u128,
    /// When its cap lets it begin again.
    paced_until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    number: u64,
    member: u64,
    /// Units for which its work has a use, or fewer that it has.
    width: u64,
    /// `None` while it waits.
    begun: Option<Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at_ns: u64,
    on_spare: bool,
}

/// An answer to who wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    Now,
    /// Now, but on so many units, from 1 on, which others leave.
    OnSpare(u64),
    /// Not yet. Ask again when another turn has ended, but at this time at the latest.
    Later(u64),
}

/// How a turn may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    Begin,
    BeginOnSpare(u64),
    /// It may not before this time, unless something changes.
    Wait(u64),
}

/// What decides at one moment who may begin: the same for all that wait.
#[derive(Clone, Copy, Debug)]
struct Moment {
    now_ns: u64,
    /// Virtual time of the session furthest behind.
    floor: u128,
    /// A nanosecond of the session with the largest weight, as virtual time.
    scale: u128,
    /// Units for which nobody with a turn has a use, and the turn that is next to have them.
    spare: Option<(u64, u64)>,
}

impl Schedule {
    /// Returns a schedule for a device of `units` units.
    pub fn new(units: u64) -> Self {
        Self {
            units: units.max(1),
            members: BTreeMap::new(),
            turns: Vec::new(),
            clock: 0,
            spare_clock: 0,
            next: 0,
        }
    }

    pub fn join(&mut self, compute: Compute) -> u64 {
        let member = Member {
            compute,
            taken: self.clock,
            taken_spare: self.spare_clock,
            paced_until_ns: 0,
        };
        let number = self.number();
        self.members.insert(number, member);
        number
    }

    /// Changes what `member` may have. What it has used counts by its new weight only from now on,
    /// and not towards a new cap.
    pub fn set(&mut self, member: u64, compute: Compute) {
        let clock = self.clock;
        if let Some(member) = self.members.get_mut(&member) {
            if member.compute.weight.is_none() {
                member.taken = clock;
            }
            if compute.share_percent != member.compute.share_percent {
                member.paced_until_ns = 0;
            }
            member.compute = compute;
        }
    }

    pub fn leave(&mut self, member: u64) {
        self.members.remove(&member);
        self.turns.retain(|turn| turn.member != member);
    }

    /// Asks for a turn, and returns its number. Its work has a use for `width` units.
    pub fn ask(&mut self, member: u64, width: u64) -> u64 {
        let credit = u128::from(CREDIT_NS) * self.scale();
        let least = self.clock.saturating_sub(credit);
        let least_spare = self.spare_clock.saturating_sub(credit);
        if let Some(member) = self.members.get_mut(&member) {
            member.taken = member.taken.max(least);
            member.taken_spare = member.taken_spare.max(least_spare);
        }
        let number = self.number();
        self.turns.push(Turn {
            number,
            member,
            width,
            begun: None,
        });
        number
    }

    /// Begins turn `number` if it may. `has_waited` tells whether it was refused before.
    pub fn begin(&mut self, number: u64, has_waited: bool, now_ns: u64) -> Begin {
        let moment = self.moment(now_ns);
        self.clock = self.clock.max(moment.floor);
        let Some(at) = self.turns.iter().position(|turn| turn.number == number) else {
            // Its session has ended.
            return Begin::Now;
        };
        let may = self.may_begin(&self.turns[at], has_waited, &moment);
        let turn = &mut self.turns[at];
        let mut begun = Begun {
            at_ns: now_ns,
            on_spare: false,
        };
        match may {
            May::Wait(until_ns) => return Begin::Later(until_ns),
            May::Begin => turn.begun = Some(begun),
            May::BeginOnSpare(units) => {
                begun.on_spare = true;
                turn.begun = Some(begun);
                turn.width = turn.width.min(units);
                let taken = self.members.get(&turn.member).map(|it| it.taken_spare);
                self.spare_clock = self.spare_clock.max(taken.unwrap_or(0));
                return Begin::OnSpare(turn.width);
            }
        }
        Begin::Now
    }

    /// Ends turn `number`, in which the whole device was used for `used_ns` nanoseconds, or takes
    /// the request for it back.
    pub fn end(&mut self, number: u64, used_ns: u64) {
        self.charge(number, used_ns);
        self.turns.retain(|turn| turn.number != number);
    }

    /// Ends turn `number` as [`Self::end`] does, and asks for it again as [`Self::ask`] does.
    pub fn renew(&mut self, number: u64, (used_ns, width): (u64, u64)) {
        self.charge(number, used_ns);
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.number == number) {
            turn.begun = None;
            turn.width = width;
        }
    }

    /// Returns the numbers of the turns that wait and may go on.
    pub fn may_go_on(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let moment = self.moment(now_ns);
        let waiting = self.turns.iter().filter(|turn| turn.begun.is_none());
        waiting
            .filter(move |turn| !matches!(self.may_begin(turn, true, &moment), May::Wait(_)))
            .map(|turn| turn.number)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn may_begin(&self, turn: &Turn, has_waited: bool, moment: &Moment) -> May {
        let last_look_ns = moment.now_ns + OVERDUE_NS;
        let Some(member) = self.members.get(&turn.member) else {
            return May::Begin;
        };
        if member.is_paced(moment.now_ns) {
            return May::Wait(member.paced_until_ns.min(last_look_ns));
        }
        let lead = match has_waited {
            true => LEAD_AFTER_WAIT_NS,
            false => LEAD_NS,
        };
        let limit = moment.floor + u128::from(lead) * moment.scale;
        if member.compute.weight.is_none() || member.taken <= limit {
            return May::Begin;
        }
        match moment.spare {
            Some((units, number)) if number == turn.number => May::BeginOnSpare(units),
            _ => May::Wait(last_look_ns),
        }
    }

    fn moment(&self, now_ns: u64) -> Moment {
        Moment {
            now_ns,
            floor: self.floor(now_ns).unwrap_or(0),
            scale: self.scale(),
            spare: self.spare(now_ns),
        }
    }

    /// Returns what a nanosecond of the whole device is as virtual time of the session with the
    /// largest weight.
    fn scale(&self) -> u128 {
        let members = self.members.values();
        let weights = members.filter_map(|member| member.compute.weight);
        virtual_time(1, weights.max().unwrap_or(1))
    }

    /// Returns the virtual time of the session furthest behind, of those that have work and do not
    /// wait for their cap; `None` if there is none.
    fn floor(&self, now_ns: u64) -> Option<u128> {
        let counts = |turn: &&Turn| match turn.begun {
            Some(begun) => now_ns.saturating_sub(begun.at_ns) < OVERDUE_NS,
            None => true,
        };
        let turns = self.turns.iter().filter(counts);
        let compared = turns.filter_map(|turn| self.compared(turn, now_ns));
        compared.map(|member| member.taken).min()
    }

    /// Returns how many units nobody with a turn has a use for, and the turn that waits and whose
    /// session has had least of such units; `None` if there are none, or nobody waits.
    fn spare(&self, now_ns: u64) -> Option<(u64, u64)> {
        let wanted = self.turns.iter().filter(|turn| turn.begun.is_some());
        let wanted = wanted.map(|turn| turn.width).fold(0, u64::saturating_add);
        // If nobody has begun, who comes next may have a use for all.
        let units = self.units.checked_sub(wanted);
        let units = units.filter(|units| (1..self.units).contains(units))?;
        let waiting = self.turns.iter().filter(|turn| turn.begun.is_none());
        let taken = waiting.filter_map(|turn| {
            let member = self.compared(turn, now_ns)?;
            Some((member.taken_spare, turn.number))
        });
        taken.min().map(|(_, number)| (units, number))
    }

    /// Returns the session of a turn if its virtual time counts: it has a weight, and does not wait
    /// for its cap.
    fn compared(&self, turn: &Turn, now_ns: u64) -> Option<&Member> {
        let member = self.members.get(&turn.member)?;
        (member.compute.weight.is_some() && !member.is_paced(now_ns)).then_some(member)
    }

    fn charge(&mut self, number: u64, used_ns: u64) {
        let Some(turn) = self.turns.iter().find(|turn| turn.number == number) else {
            return;
        };
        let Some(begun) = turn.begun else {
            return;
        };
        if let Some(member) = self.members.get_mut(&turn.member) {
            member.charge(begun, used_ns);
        }
    }
}

impl Member {
    /// Charges `used_ns` nanoseconds of the whole device, taken in a turn.
    fn charge(&mut self, turn: Begun, used_ns: u64) {
        let Compute {
            weight,
            share_percent,
        } = self.compute;
        if let Some(weight) = weight {
            let taken = match turn.on_spare {
                true => &mut self.taken_spare,
                false => &mut self.taken,
            };
            *taken = taken.saturating_add(virtual_time(used_ns, weight));
        }
        if let Some(percent) = share_percent {
            let base = self.paced_until_ns.max(turn.at_ns.saturating_sub(SLACK_NS));
            let pace = used_ns.saturating_mul(100) / u64::from(percent.max(1));
            self.paced_until_ns = base.saturating_add(pace);
        }
    }

    /// Returns whether the session waits for its cap.
    fn is_paced(&self, now_ns: u64) -> bool {
        now_ns < self.paced_until_ns
    }
}

/// Returns what `device_ns` nanoseconds of the whole device are for a session of this weight.
fn virtual_time(device_ns: u64, weight: u32) -> u128 {
    u128::from(device_ns) * u128::from(Compute::WEIGHT_MAX) / u128::from(weight.max(1))
}

#[cfg(test)]
mod tests;
