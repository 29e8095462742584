//! Whose turn it is: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with weights,
//! caps, and turns that take a part of the device. Times are nanoseconds of one clock, which the
//! caller reads.

use std::collections::BTreeMap;

use super::Compute;

/// A turn that lasts longer no longer keeps others from the device: a kernel that never ends must
/// not stop everybody. From then on, the host's scheduler shares out the processors.
pub(super) const OVERDUE_NS: u64 = 20_000_000;
/// How much of its share a session that had no work may make up for, as time of the whole device
/// at the default weight. A program that waits for each of its kernels is without work for some
/// microseconds after each of them, and must not lose its share to those that never wait.
const CREDIT_NS: u64 = 5_000_000;
/// How much of its cap a session may make up for, as time on the clock.
const SLACK_NS: u64 = 20_000_000;

/// Turns that are asked for and turns under way.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Parts into which the device is divided.
    units: u64,
    members: BTreeMap<u64, Member>,
    turns: Vec<Turn>,
    /// Start of the last turn that began, in virtual time.
    clock: u64,
    next: u64,
}

/// A session.
#[derive(Debug)]
struct Member {
    compute: Compute,
    /// What it has taken, in nanoseconds of the whole device, divided by its weight.
    taken: u64,
    /// When its cap lets it begin again.
    paced_until_ns: u64,
}

#[derive(Debug)]
struct Turn {
    number: u64,
    member: u64,
    units: u64,
    /// `None` while it waits.
    begun: Option<Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at_ns: u64,
    charged_until_ns: u64,
}

/// An answer to who wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    Now,
    /// Not yet. Ask again when another turn has ended, but at this time at the latest.
    Later(u64),
}

impl Schedule {
    pub fn new(units: u64) -> Self {
        Self {
            units: units.max(1),
            members: BTreeMap::new(),
            turns: Vec::new(),
            clock: 0,
            next: 0,
        }
    }

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

    pub fn leave(&mut self, member: u64) {
        self.members.remove(&member);
        self.turns.retain(|turn| turn.member != member);
    }

    /// Asks for a turn on `units` parts of the device, and returns its number.
    pub fn ask(&mut self, member: u64, units: u64) -> u64 {
        let number = self.number();
        self.turns.push(Turn {
            number,
            member,
            units: units.clamp(1, self.units),
            begun: None,
        });
        number
    }

    /// Begins turn `number` if its time has come.
    pub fn begin(&mut self, number: u64, now_ns: u64) -> Begin {
        self.charge(now_ns);
        let last_look = now_ns + OVERDUE_NS;
        let Some(at) = self.turns.iter().position(|turn| turn.number == number) else {
            // Its session has ended.
            return Begin::Now;
        };
        let paced_until = self.paced_until(&self.turns[at]);
        if now_ns < paced_until {
            return Begin::Later(paced_until.min(last_look));
        }
        if self.head(now_ns) != Some(number) {
            return Begin::Later(last_look);
        }
        if let Some(room_at) = self.room_at(self.turns[at].units, now_ns) {
            return Begin::Later(room_at);
        }
        let start = self.start(&self.turns[at]);
        self.clock = self.clock.max(start);
        if let Some(member) = self.members.get_mut(&self.turns[at].member) {
            member.taken = start;
        }
        self.turns[at].begun = Some(Begun {
            at_ns: now_ns,
            charged_until_ns: now_ns,
        });
        Begin::Now
    }

    /// Ends turn `number`, or takes the request for it back.
    pub fn end(&mut self, number: u64, now_ns: u64) {
        self.charge(now_ns);
        self.turns.retain(|turn| turn.number != number);
    }

    /// Ends turn `number` and asks for it again.
    pub fn renew(&mut self, number: u64, units: u64, now_ns: u64) {
        self.charge(now_ns);
        let most = self.units;
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.number == number) {
            turn.begun = None;
            turn.units = units.clamp(1, most);
        }
    }

    /// Returns the number of the turn that is next among those that wait and may begin.
    pub fn head(&self, now_ns: u64) -> Option<u64> {
        let waiting = self.turns.iter().filter(|turn| turn.begun.is_none());
        let permitted = waiting.filter(|turn| self.paced_until(turn) <= now_ns);
        permitted
            .min_by_key(|turn| (self.start(turn), turn.number))
            .map(|turn| turn.number)
    }

    /// Returns whether a turn waits.
    pub fn is_waited_for(&self) -> bool {
        self.turns.iter().any(|turn| turn.begun.is_none())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns when a turn that waits would begin, in virtual time.
    fn start(&self, turn: &Turn) -> u64 {
        let Some(member) = self.members.get(&turn.member) else {
            return 0;
        };
        member.taken.max(self.clock.saturating_sub(CREDIT_NS))
    }

    fn paced_until(&self, turn: &Turn) -> u64 {
        let member = self.members.get(&turn.member);
        member.map_or(0, |member| member.paced_until_ns)
    }

    /// Returns when a turn that takes `units` may find room at the earliest, if there is none now.
    /// Turns that are overdue take no room.
    fn room_at(&self, units: u64, now_ns: u64) -> Option<u64> {
        let begun = self
            .turns
            .iter()
            .filter_map(|turn| Some((turn, turn.begun?)));
        let in_time = begun.filter(|(_, begun)| now_ns - begun.at_ns < OVERDUE_NS);
        let (mut taken, mut first_overdue) = (0, u64::MAX);
        for (turn, begun) in in_time {
            taken += turn.units;
            first_overdue = first_overdue.min(begun.at_ns + OVERDUE_NS);
        }
        (taken + units > self.units && taken != 0).then_some(first_overdue)
    }

    /// Charges turns under way for their time until now, so that a session with many turns at once
    /// is charged before the next one begins.
    fn charge(&mut self, now_ns: u64) {
        for turn in &mut self.turns {
            let (Some(begun), Some(member)) = (&mut turn.begun, self.members.get_mut(&turn.member))
            else {
                continue;
            };
            let from_ns = begun.charged_until_ns;
            let part_ns = now_ns.saturating_sub(from_ns).saturating_mul(turn.units) / self.units;
            begun.charged_until_ns = now_ns;
            member.charge(from_ns, part_ns);
        }
    }
}

impl Member {
    /// Charges `part_ns` nanoseconds of the whole device, taken from `from_ns` on.
    fn charge(&mut self, from_ns: u64, part_ns: u64) {
        let Compute {
            weight,
            share_percent,
        } = self.compute;
        let usual = u64::from(Compute::DEFAULT.weight);
        let taken = part_ns.saturating_mul(usual) / u64::from(weight.max(1));
        self.taken = self.taken.saturating_add(taken);
        if let Some(percent) = share_percent {
            let base = self.paced_until_ns.max(from_ns.saturating_sub(SLACK_NS));
            let pace = part_ns.saturating_mul(100) / u64::from(percent.max(1));
            self.paced_until_ns = base.saturating_add(pace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const MS: u64 = 1_000_000;

    fn compute(weight: u32) -> Compute {
        Compute {
            weight,
            ..Compute::DEFAULT
        }
    }

    /// Has each of `members` always ask for a turn of so many nanoseconds on so many units, in the
    /// time `span_ns`, and returns the time that each had the device.
    fn run(schedule: &mut Schedule, members: &[(u64, u64, u64)], span_ns: Range<u64>) -> Vec<u64> {
        struct Asked {
            number: u64,
            ends_ns: Option<u64>,
        }
        let mut asked: Vec<_> = members
            .iter()
            .map(|(member, _, units)| Asked {
                number: schedule.ask(*member, *units),
                ends_ns: None,
            })
            .collect();
        let mut had = vec![0; members.len()];
        let mut now = span_ns.start;
        while now < span_ns.end {
            let mut next = span_ns.end;
            for (at, (_, lasts_ns, units)) in members.iter().enumerate() {
                if asked[at].ends_ns.is_some_and(|ends| ends <= now) {
                    schedule.renew(asked[at].number, *units, now);
                    asked[at].ends_ns = None;
                    had[at] += lasts_ns;
                }
            }
            for _ in 0..members.len() {
                for (at, (_, lasts_ns, _)) in members.iter().enumerate() {
                    if asked[at].ends_ns.is_some() {
                        continue;
                    }
                    match schedule.begin(asked[at].number, now) {
                        Begin::Now => asked[at].ends_ns = Some(now + lasts_ns),
                        Begin::Later(at_ns) => next = next.min(at_ns.max(now + 1)),
                    }
                }
            }
            let ends = asked.iter().filter_map(|turn| turn.ends_ns);
            now = ends.chain([next]).min().unwrap_or(next);
        }
        for turn in asked {
            schedule.end(turn.number, now);
        }
        had
    }

    fn shares(had: &[u64]) -> Vec<f64> {
        let all: u64 = had.iter().sum();
        had.iter().map(|ns| *ns as f64 / all as f64).collect()
    }

    #[test]
    fn time_is_shared_by_weight_whatever_a_turn_lasts() {
        for lasts in [[MS; 4], [MS, 2 * MS, MS / 2, 5 * MS]] {
            let mut schedule = Schedule::new(8);
            let members: Vec<_> = [1, 2, 4, 8]
                .iter()
                .zip(lasts)
                .map(|(weight, lasts)| (schedule.join(compute(*weight)), lasts, 8))
                .collect();
            let had = run(&mut schedule, &members, 0..10_000 * MS);
            for (share, wanted) in shares(&had).iter().zip([1., 2., 4., 8.]) {
                let wanted = wanted / 15.;
                assert!((share / wanted - 1.).abs() < 0.02, "{lasts:?}: {had:?}");
            }
            let all: u64 = had.iter().sum();
            assert!(all > 9_990 * MS, "nobody waits for nothing: {all}");
        }
    }

    #[test]
    fn small_turns_fit_beside_each_other() {
        let mut schedule = Schedule::new(4);
        let members: Vec<_> = (0..4)
            .map(|_| (schedule.join(Compute::DEFAULT), MS, 1))
            .collect();
        let had = run(&mut schedule, &members, 0..1000 * MS);
        assert!(had.iter().all(|ns| *ns > 990 * MS), "{had:?}");
        // One that wants the whole device gets its share of it.
        let greedy = schedule.join(Compute::DEFAULT);
        let mut members = members;
        members.push((greedy, MS, 4));
        let had = run(&mut schedule, &members, 1000 * MS..3000 * MS);
        assert!(had[4] > 150 * MS, "{had:?}");
    }

    #[test]
    fn a_cap_holds_without_others() {
        let mut schedule = Schedule::new(2);
        let capped = Compute {
            share_percent: Some(25),
            ..Compute::DEFAULT
        };
        let member = schedule.join(capped);
        let had = run(&mut schedule, &[(member, MS / 3, 2)], 0..10_000 * MS);
        let share = had[0] as f64 / (10_000 * MS) as f64;
        assert!((share - 0.25).abs() < 0.01, "{share}");
    }

    #[test]
    fn the_cap_of_one_leaves_the_device_to_others() {
        let mut schedule = Schedule::new(2);
        let capped = Compute {
            share_percent: Some(10),
            weight: 10_000,
        };
        let (capped, other) = (schedule.join(capped), schedule.join(compute(1)));
        let members = [(capped, MS, 2), (other, MS, 2)];
        let had = run(&mut schedule, &members, 0..10_000 * MS);
        let shares = shares(&had);
        assert!((shares[0] - 0.1).abs() < 0.01, "{shares:?}");
        assert!(had.iter().sum::<u64>() > 9_900 * MS, "{had:?}");
    }

    #[test]
    fn who_was_idle_is_next_but_makes_up_for_little() {
        let mut schedule = Schedule::new(1);
        let [greedy, light] = [(); 2].map(|()| schedule.join(Compute::DEFAULT));
        let now = 1000 * MS;
        run(&mut schedule, &[(greedy, MS, 1)], 0..now);
        let (first, second) = (schedule.ask(greedy, 1), schedule.ask(light, 1));
        assert_ne!(schedule.begin(first, now), Begin::Now);
        assert_eq!(schedule.begin(second, now), Begin::Now);
        schedule.turns.clear();
        let members = [(greedy, MS, 1), (light, MS, 1)];
        let had = run(&mut schedule, &members, now..now + 100 * MS);
        assert!(had[0] >= 40 * MS, "{had:?}");
    }

    #[test]
    fn a_turn_that_never_ends_stops_nobody_but_is_charged() {
        let mut schedule = Schedule::new(2);
        let [endless, other] = [(); 2].map(|()| schedule.join(Compute::DEFAULT));
        let forever = schedule.ask(endless, 2);
        assert_eq!(schedule.begin(forever, 0), Begin::Now);
        let waits = schedule.ask(other, 2);
        assert_eq!(schedule.begin(waits, MS), Begin::Later(OVERDUE_NS));
        assert_eq!(schedule.begin(waits, OVERDUE_NS), Begin::Now);
        // Another turn of the same session waits behind everybody: what runs is charged.
        let more = schedule.ask(endless, 1);
        schedule.end(waits, OVERDUE_NS + MS);
        let again = schedule.ask(other, 2);
        assert_eq!(schedule.head(OVERDUE_NS + MS), Some(again));
        schedule.leave(endless);
        assert_eq!(schedule.begin(more, OVERDUE_NS + MS), Begin::Now, "nobody");
        assert!(schedule.turns.iter().all(|turn| turn.member == other));
    }

    #[test]
    fn a_request_that_is_taken_back_holds_up_nobody() {
        let mut schedule = Schedule::new(1);
        let [first, second] = [(); 2].map(|()| schedule.join(Compute::DEFAULT));
        let running = schedule.ask(first, 1);
        assert_eq!(schedule.begin(running, 0), Begin::Now);
        let (given_up, waits) = (schedule.ask(second, 1), schedule.ask(first, 1));
        schedule.end(running, MS);
        assert!(schedule.is_waited_for());
        assert_eq!(schedule.head(MS), Some(given_up));
        schedule.end(given_up, MS);
        assert_eq!(schedule.begin(waits, MS), Begin::Now);
        assert!(!schedule.is_waited_for());
    }
}
