//! Who may go on: fair queueing by weights, with a lead.
//!
//! Each session has taken some time of the device, divided by its weight: its *virtual time*.
//! Sessions run at the same time, so that no unit of the device is idle while one hands over to
//! another; one that is ahead of the one furthest behind waits until that one has caught up. Times
//! on the clock are nanoseconds, which the caller reads.

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
/// How much a session that had no work may make up for, in the same way. A program that waits for each
/// of its kernels is without work for some microseconds after each of them, and must not lose its
/// share to those that never wait.
const CREDIT_NS: u64 = LEAD_NS / 4;
/// How much of its cap a session may make up for, as time on the clock.
const SLACK_NS: u64 = 20_000_000;

/// Turns that are asked for and turns under way.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    members: BTreeMap<u64, Member>,
    turns: Vec<Turn>,
    /// The virtual time of the session that was furthest behind. It only grows.
    clock: u64,
    next: u64,
}

/// A session.
#[derive(Debug)]
struct Member {
    compute: Compute,
    /// Its virtual time.
    taken: u64,
    /// When its cap lets it begin again.
    paced_until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    number: u64,
    member: u64,
    /// When it began; `None` while it waits.
    begun_ns: Option<u64>,
}

/// An answer to who wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    Now,
    /// Not yet. Ask again when another turn has ended, but at this time at the latest.
    Later(u64),
}

impl Schedule {
    pub fn join(&mut self, compute: Compute) -> u64 {
        let member = Member {
            compute,
            taken: self.clock,
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

    /// Asks for a turn, and returns its number.
    pub fn ask(&mut self, member: u64) -> u64 {
        let least = self.clock.saturating_sub(self.span(CREDIT_NS));
        if let Some(member) = self.members.get_mut(&member) {
            member.taken = member.taken.max(least);
        }
        let number = self.number();
        self.turns.push(Turn {
            number,
            member,
            begun_ns: None,
        });
        number
    }

    /// Begins turn `number` if it may. `has_waited` tells whether it was refused before.
    pub fn begin(&mut self, number: u64, has_waited: bool, now_ns: u64) -> Begin {
        self.clock = self.clock.max(self.floor(now_ns).unwrap_or(0));
        let Some(at) = self.turns.iter().position(|turn| turn.number == number) else {
            // Its session has ended.
            return Begin::Now;
        };
        match self.may_begin(&self.turns[at], has_waited, now_ns) {
            Begin::Now => self.turns[at].begun_ns = Some(now_ns),
            later => return later,
        }
        Begin::Now
    }

    /// Ends turn `number`, in which the whole device was used for `used_ns` nanoseconds, or takes
    /// the request for it back.
    pub fn end(&mut self, number: u64, used_ns: u64, now_ns: u64) {
        self.charge(number, used_ns, now_ns);
        self.turns.retain(|turn| turn.number != number);
    }

    /// Ends turn `number` as [`Self::end`] does, and asks for it again.
    pub fn renew(&mut self, number: u64, used_ns: u64, now_ns: u64) {
        self.charge(number, used_ns, now_ns);
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.number == number) {
            turn.begun_ns = None;
        }
    }

    /// Returns whether turn `number`, which waits, may go on.
    pub fn may_go_on(&self, number: u64, now_ns: u64) -> bool {
        let turn = self.turns.iter().find(|turn| turn.number == number);
        turn.is_none_or(|turn| self.may_begin(turn, true, now_ns) == Begin::Now)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn may_begin(&self, turn: &Turn, has_waited: bool, now_ns: u64) -> Begin {
        let last_look = now_ns + OVERDUE_NS;
        let Some(member) = self.members.get(&turn.member) else {
            return Begin::Now;
        };
        if now_ns < member.paced_until_ns {
            return Begin::Later(member.paced_until_ns.min(last_look));
        }
        if member.compute.weight.is_none() {
            return Begin::Now;
        }
        let lead = match has_waited {
            true => LEAD_AFTER_WAIT_NS,
            false => LEAD_NS,
        };
        let floor = self.floor(now_ns).unwrap_or(0);
        match member.taken <= floor.saturating_add(self.span(lead)) {
            true => Begin::Now,
            false => Begin::Later(last_look),
        }
    }

    /// Returns the virtual time in which the session with the largest weight uses the whole device
    /// for `device_ns` nanoseconds.
    fn span(&self, device_ns: u64) -> u64 {
        let weights = self
            .members
            .values()
            .filter_map(|member| member.compute.weight);
        virtual_time(device_ns, weights.max().unwrap_or(1))
    }

    /// Returns the virtual time of the session furthest behind, of those that have work and do not
    /// wait for their cap; `None` if there is none.
    fn floor(&self, now_ns: u64) -> Option<u64> {
        let counts = |turn: &&Turn| match turn.begun_ns {
            Some(begun_ns) => now_ns.saturating_sub(begun_ns) < OVERDUE_NS,
            None => true,
        };
        let turns = self.turns.iter().filter(counts);
        let members = turns.filter_map(|turn| self.members.get(&turn.member));
        let compared = members.filter(|member| member.compute.weight.is_some());
        let unpaced = compared.filter(|member| member.paced_until_ns <= now_ns);
        unpaced.map(|member| member.taken).min()
    }

    fn charge(&mut self, number: u64, used_ns: u64, now_ns: u64) {
        let Some(turn) = self.turns.iter().find(|turn| turn.number == number) else {
            return;
        };
        let begun_ns = turn.begun_ns.unwrap_or(now_ns);
        if let Some(member) = self.members.get_mut(&turn.member) {
            member.charge(begun_ns, used_ns);
        }
    }
}

impl Member {
    /// Charges `used_ns` nanoseconds of the whole device, taken from `begun_ns` on.
    fn charge(&mut self, begun_ns: u64, used_ns: u64) {
        let Compute {
            weight,
            share_percent,
        } = self.compute;
        if let Some(weight) = weight {
            self.taken = self.taken.saturating_add(virtual_time(used_ns, weight));
        }
        if let Some(percent) = share_percent {
            let base = self.paced_until_ns.max(begun_ns.saturating_sub(SLACK_NS));
            let pace = used_ns.saturating_mul(100) / u64::from(percent.max(1));
            self.paced_until_ns = base.saturating_add(pace);
        }
    }
}

/// Returns what `device_ns` nanoseconds of the whole device are for a session of this weight.
fn virtual_time(device_ns: u64, weight: u32) -> u64 {
    let largest = u64::from(Compute::WEIGHT_MAX);
    device_ns.saturating_mul(largest) / u64::from(weight.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const STEP_NS: u64 = MS / 20;

    fn compute(weight: u32) -> Compute {
        Compute {
            weight: Some(weight),
            ..Compute::DEFAULT
        }
    }

    /// A session that always has work.
    struct Busy {
        member: u64,
        /// Time of the whole device that one turn takes.
        turn_ns: u64,
        number: u64,
        has_waited: bool,
        left_ns: Option<u64>,
        had_ns: u64,
    }

    /// Runs sessions that always have work on a device of one unit, which divides itself equally
    /// between the turns under way, and returns the time that each had.
    fn run(schedule: &mut Schedule, members: &[(u64, u64)], span_ns: u64) -> Vec<u64> {
        let mut all: Vec<_> = members
            .iter()
            .map(|(member, turn_ns)| Busy {
                member: *member,
                turn_ns: *turn_ns,
                number: schedule.ask(*member),
                has_waited: false,
                left_ns: None,
                had_ns: 0,
            })
            .collect();
        for now in (0..span_ns).step_by(STEP_NS as usize) {
            for busy in all.iter_mut().filter(|busy| busy.left_ns.is_none()) {
                match schedule.begin(busy.number, busy.has_waited, now) {
                    Begin::Now => busy.left_ns = Some(busy.turn_ns),
                    Begin::Later(_) => busy.has_waited = true,
                }
            }
            let running = all.iter().filter(|busy| busy.left_ns.is_some()).count() as u64;
            for busy in &mut all {
                let Some(left_ns) = &mut busy.left_ns else {
                    continue;
                };
                let part = (STEP_NS / running).min(*left_ns);
                *left_ns -= part;
                busy.had_ns += part;
                if *left_ns == 0 {
                    schedule.renew(busy.number, busy.turn_ns, now + STEP_NS);
                    (busy.left_ns, busy.has_waited) = (None, false);
                }
            }
        }
        for busy in &all {
            assert!(schedule.members.contains_key(&busy.member));
            schedule.end(busy.number, 0, span_ns);
        }
        all.iter().map(|busy| busy.had_ns).collect()
    }

    fn shares(had: &[u64]) -> Vec<f64> {
        let all: u64 = had.iter().sum();
        had.iter().map(|ns| *ns as f64 / all as f64).collect()
    }

    #[test]
    fn time_is_shared_by_weight_whatever_a_turn_takes() {
        for turns in [[MS; 4], [MS, 2 * MS, MS / 2, 5 * MS]] {
            let mut schedule = Schedule::default();
            let members: Vec<_> = [1, 2, 4, 8]
                .iter()
                .zip(turns)
                .map(|(weight, turn)| (schedule.join(compute(100 * weight)), turn))
                .collect();
            let had = run(&mut schedule, &members, 20_000 * MS);
            for (share, wanted) in shares(&had).iter().zip([1., 2., 4., 8.]) {
                let wanted = wanted / 15.;
                assert!((share / wanted - 1.).abs() < 0.02, "{turns:?}: {had:?}");
            }
            let all: u64 = had.iter().sum();
            assert!(all > 19_800 * MS, "the device is never idle: {all}");
        }
    }

    #[test]
    fn a_session_with_many_consumers_gains_nothing() {
        let mut schedule = Schedule::default();
        let [greedy, other] = [(); 2].map(|()| schedule.join(compute(100)));
        let mut members = vec![(other, MS)];
        members.extend([(greedy, MS); 16]);
        let had = run(&mut schedule, &members, 10_000 * MS);
        let other = shares(&had)[0];
        assert!((other - 0.5).abs() < 0.02, "{other}");
    }

    #[test]
    fn a_cap_holds_without_others() {
        let mut schedule = Schedule::default();
        let member = schedule.join(Compute {
            share_percent: Some(25),
            ..Compute::DEFAULT
        });
        let had = run(&mut schedule, &[(member, MS / 4)], 10_000 * MS);
        let share = had[0] as f64 / (10_000 * MS) as f64;
        assert!((share - 0.25).abs() < 0.01, "{share}");
    }

    #[test]
    fn the_cap_of_one_leaves_the_device_to_others() {
        let mut schedule = Schedule::default();
        let capped = schedule.join(Compute {
            share_percent: Some(10),
            weight: Some(10_000),
        });
        let other = schedule.join(compute(1));
        let members = [(capped, MS / 4), (other, MS)];
        let had = run(&mut schedule, &members, 10_000 * MS);
        let shares = shares(&had);
        assert!((shares[0] - 0.1).abs() < 0.01, "{shares:?}");
        assert!(had.iter().sum::<u64>() > 9_900 * MS, "{had:?}");
    }

    #[test]
    fn who_was_idle_goes_on_at_once_but_makes_up_for_little() {
        let mut schedule = Schedule::default();
        let [greedy, light] = [(); 2].map(|()| schedule.join(compute(100)));
        run(&mut schedule, &[(greedy, MS)], 1000 * MS);
        let asked = schedule.ask(light);
        assert_eq!(schedule.begin(asked, false, 1000 * MS), Begin::Now);
        schedule.end(asked, 0, 1000 * MS);
        let had = run(&mut schedule, &[(greedy, MS), (light, MS)], 100 * MS);
        assert!(had[0] >= 40 * MS, "{had:?}");
    }

    #[test]
    fn nobody_waits_for_a_turn_that_never_ends() {
        let mut schedule = Schedule::default();
        let [endless, other] = [(); 2].map(|()| schedule.join(compute(100)));
        let forever = schedule.ask(endless);
        assert_eq!(schedule.begin(forever, false, 0), Begin::Now);
        let turn = schedule.ask(other);
        assert_eq!(schedule.begin(turn, false, 0), Begin::Now);
        schedule.renew(turn, 2 * LEAD_NS, MS);
        assert!(matches!(schedule.begin(turn, false, MS), Begin::Later(_)));
        assert!(!schedule.may_go_on(turn, OVERDUE_NS - 1));
        assert!(schedule.may_go_on(turn, OVERDUE_NS));
        assert_eq!(schedule.begin(turn, true, OVERDUE_NS), Begin::Now);
        schedule.leave(endless);
        assert_eq!(schedule.begin(forever, false, MS), Begin::Now, "nobody");
        assert!(schedule.turns.iter().all(|turn| turn.member == other));
    }

    #[test]
    fn who_is_ahead_waits_until_the_other_has_caught_up_or_has_no_work() {
        let mut schedule = Schedule::default();
        let [first, second] = [(); 2].map(|()| schedule.join(compute(100)));
        let (ahead, behind) = (schedule.ask(first), schedule.ask(second));
        schedule.renew(ahead, 2 * LEAD_NS, MS);
        assert!(matches!(schedule.begin(ahead, false, MS), Begin::Later(_)));
        assert_eq!(schedule.begin(behind, false, MS), Begin::Now);
        schedule.renew(behind, LEAD_NS, 2 * MS);
        assert!(!schedule.may_go_on(ahead, 2 * MS), "it has waited");
        schedule.renew(behind, LEAD_NS / 2, 3 * MS);
        assert!(schedule.may_go_on(ahead, 3 * MS));
        schedule.renew(ahead, 32 * LEAD_NS, 4 * MS);
        assert!(!schedule.may_go_on(ahead, 4 * MS));
        schedule.end(behind, 0, 5 * MS);
        assert!(schedule.may_go_on(ahead, 5 * MS));
    }
}
