//! Who has the device next, and for how long: fair queueing by weights, one session at a time.
//!
//! Each session has taken some time of the device, divided by its weight: its *virtual time*. The
//! session that is furthest behind has the device, until it is [`LEAD_NS`] ahead of one that waits.
//! Then it submits nothing more, and the next one begins while the last work of the one before is
//! under way, so that the device never waits for a hand-over. The session before is charged for
//! that time. If its work lasts for longer than [`member::SLICE_NS`], all sessions with work under
//! way are charged in equal parts, because a GPU divides itself equally between contexts. Nobody
//! waits for work that does not end.
//!
//! Times are nanoseconds on the clock of the caller.

mod member;

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_mediator::{Compute, LeaseOrder, LeaseReport};

use member::{Member, Phase, Waiting};

/// How far a session gets ahead of one that waits, in its own time of the device. A lease lasts at
/// least so long if the session has work.
const LEAD_NS: u64 = 6_000_000;
/// How far a session that had little work may begin behind the one furthest behind, as its own time
/// of the device. Then it goes first at once: a program that waits for each of its kernels is
/// without work between them.
const CREDIT_NS: u64 = LEAD_NS * 3 / 2;

/// Sessions, and what each does.
#[derive(Debug, Default)]
pub(super) struct Rota {
    members: BTreeMap<u64, Member>,
    /// Up to when time was counted.
    at_ns: u64,
    /// The virtual time of the session that was furthest behind. It only grows.
    clock: u128,
}

impl Rota {
    /// Makes a session a member, which nobody can tell anything yet.
    pub fn join(&mut self, session: u64, compute: Compute) {
        self.members
            .insert(session, Member::new(compute, self.clock));
    }

    /// Ends the membership of a session.
    pub fn leave(&mut self, session: u64) {
        self.members.remove(&session);
    }

    /// Notes that a session has closed. What it has had is kept.
    pub fn close(&mut self, session: u64) {
        self.set_present(session, false);
        if let Some(member) = self.members.get_mut(&session) {
            member.is_open = false;
        }
    }

    /// Notes that a process has begun or ended to serve the session.
    pub fn set_present(&mut self, session: u64, is_present: bool) {
        if let Some(member) = self.members.get_mut(&session) {
            member.is_present = is_present;
            member.restart();
        }
    }

    /// Changes what a session may have. What it has used counts by its new weight only from now on,
    /// and not towards a new cap.
    pub fn set(&mut self, session: u64, compute: Compute) {
        let clock = self.clock;
        if let Some(member) = self.members.get_mut(&session) {
            member.set(compute, clock);
        }
    }

    /// Returns what a session may have; the default if it is no member.
    pub fn compute(&self, session: u64) -> Compute {
        let member = self.members.get(&session);
        member.map_or(Compute::DEFAULT, |member| member.compute)
    }

    /// Returns the time of the device that a session has had while others waited for it, or under a
    /// cap.
    pub fn used_ns(&self, session: u64) -> u64 {
        let member = self.members.get(&session);
        member.map_or(0, |member| member.used_ns)
    }

    /// Notes what a session has reported. What it cannot be reporting is ignored, because a process
    /// may have been taken over, and because orders and reports cross; then this returns false.
    pub fn told(&mut self, session: u64, report: LeaseReport, now_ns: u64) -> bool {
        self.advance(now_ns);
        let floor = self.floor();
        let member = self.members.get_mut(&session).filter(|it| it.asks);
        member.is_some_and(|member| member.told(report, floor, now_ns))
    }

    /// Decides what sessions are told at this time, in order. Also returns when to decide again if
    /// nobody reports anything before.
    pub fn decide(&mut self, now_ns: u64) -> (Vec<(u64, LeaseOrder)>, Option<u64>) {
        self.advance(now_ns);
        let mut orders = Vec::new();
        self.set_modes(&mut orders);
        self.give_up_on_late_ones(now_ns);
        self.grant(now_ns, &mut orders);
        self.ask_back(now_ns, &mut orders);
        (orders, self.next_ns(now_ns))
    }

    /// Tells those for whom it has changed whether they need leases.
    fn set_modes(&mut self, orders: &mut Vec<(u64, LeaseOrder)>) {
        let open = self.members.values().filter(|member| member.is_open);
        let weighted = open.filter(|it| it.compute.weight.is_some()).count();
        for (session, member) in &mut self.members {
            let Compute {
                weight,
                share_percent,
            } = member.compute;
            let asks = share_percent.is_some() || weight.is_some() && weighted > 1;
            if !member.is_present || asks == member.asks {
                continue;
            }
            member.restart();
            member.asks = asks;
            if asks {
                // It may have work under way, and says when it has none.
                (member.phase, member.number) = (Phase::Stopped(0), 0);
            }
            orders.push((
                *session,
                match asks {
                    true => LeaseOrder::Ask,
                    false => LeaseOrder::Free,
                },
            ));
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
    fn grant(&mut self, now_ns: u64, orders: &mut Vec<(u64, LeaseOrder)>) {
        let is_held = self.members.values().any(Member::is_holder);
        let first = (!is_held).then(|| self.furthest_behind()).flatten();
        for (session, member) in &mut self.members {
            let is_first = first.is_some_and(|first| first.session == *session);
            if member.waits(now_ns) && (is_first || member.compute.weight.is_none()) {
                member.phase = Phase::Holds(None);
                (member.wants, member.is_fresh) = (false, false);
                // Not 0, which is for work of no lease.
                member.number = member.number.checked_add(1).unwrap_or(1);
                orders.push((*session, LeaseOrder::Grant(member.number)));
            }
        }
    }

    /// Asks sessions that have the device for it: for others that wait, because of others that work
    /// beside it, and because of their caps.
    fn ask_back(&mut self, now_ns: u64, orders: &mut Vec<(u64, LeaseOrder)>) {
        let behind = self.furthest_behind();
        let has_company = |it: &Member| it.is_active() && it.compute.weight.is_none();
        let has_company = self.members.values().any(has_company);
        for (session, member) in &mut self.members {
            let Phase::Holds(due_ns) = member.phase else {
                continue;
            };
            let mut wanted = member.cap_due_ns(now_ns);
            if member.compute.weight.is_some() {
                let for_others = behind.map(|other| member.due_for(&other, now_ns));
                // One without work must not count among those that use the device.
                let for_company = has_company && due_ns.is_none();
                let for_company = for_company.then_some(now_ns + LEAD_NS);
                let all = [wanted, for_others, for_company];
                wanted = all.into_iter().flatten().min();
            }
            // A change by little is not worth a message.
            let is_earlier = |wanted_ns: &u64| {
                due_ns.is_none_or(|due_ns| due_ns > wanted_ns.saturating_add(LEAD_NS / 50))
            };
            if let Some(wanted_ns) = wanted.filter(is_earlier) {
                member.phase = Phase::Holds(Some(wanted_ns));
                let within = Duration::from_nanos(wanted_ns - now_ns);
                orders.push((*session, LeaseOrder::Return(within)));
            }
        }
    }

    /// Returns when something changes though nobody reports anything.
    fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let members = self.members.values();
        let times = members.filter_map(|member| match member.phase {
            Phase::Holds(_) => member.late_ns(),
            Phase::Idle | Phase::Stopped(_) if member.wants => member.waits_from_ns(now_ns),
            Phase::Idle | Phase::Stopped(_) => None,
        });
        times.min()
    }

    /// Counts the time since the last call for those that have work under way. One that has the
    /// device and for which nobody waits may have no work, and says nothing. Its virtual time goes
    /// on: that is how others have less than their share.
    fn advance(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let now_ns = self.at_ns;
        let members = || self.members.values();
        let is_alone = members().filter(|it| it.is_active()).count() == 1
            && !members().any(|it| it.waits(now_ns));
        // The device finishes the last work of one session before it begins that of the next.
        let is_ending = members().any(|it| it.is_ending(now_ns) && it.compute.weight.is_some());
        let uses = |member: &Member| member.is_active() && !(is_ending && member.is_holder());
        let users = members().filter(|member| uses(member)).count() as u64;
        for member in self.members.values_mut() {
            member.save(passed_ns);
            if uses(member) {
                member.charge(passed_ns / users, is_alone);
            }
        }
        self.clock = self.floor();
    }

    /// Returns the virtual time of the session furthest behind, of those that have or want the
    /// device; the last one if there is none.
    fn floor(&self) -> u128 {
        let counts = |member: &&Member| {
            member.compute.weight.is_some() && (member.waits(self.at_ns) || member.is_holder())
        };
        let counted = self.members.values().filter(counts);
        let least = counted.map(|member| member.taken).min();
        least.map_or(self.clock, |least| least.max(self.clock))
    }

    /// Returns the session furthest behind, of those with a weight that wait and may have the
    /// device.
    fn furthest_behind(&self) -> Option<Waiting> {
        let members = self.members.iter();
        members
            .filter(|(_, member)| member.compute.weight.is_some() && member.waits(self.at_ns))
            .map(|(session, member)| Waiting {
                taken: member.taken,
                session: *session,
                is_fresh: member.is_fresh,
            })
            .min()
    }
}

#[cfg(test)]
mod tests;
