//! Schedules on a simulated device.

use super::*;

const MS: u64 = 1_000_000;
const STEP_NS: u64 = MS / 20;

fn compute(weight: u32) -> Compute {
    Compute {
        weight: Some(weight),
        ..Compute::DEFAULT
    }
}

/// A session that always has work: its number, the time of the whole device that one turn takes,
/// and the units for which its kernels have a use.
type Load = (u64, u64, u64);

struct Busy {
    load: Load,
    number: u64,
    has_waited: bool,
    /// What is left of the turn under way, and the units that it uses.
    turn: Option<(u64, u64)>,
    had_ns: u64,
}

/// Runs sessions that always have work on a device that divides itself between the turns under way
/// by the units that they can use, and returns the time of the whole device that each had.
fn run(schedule: &mut Schedule, loads: &[Load], span_ns: u64) -> Vec<u64> {
    let units = schedule.units;
    let mut all: Vec<_> = loads
        .iter()
        .map(|load| Busy {
            load: *load,
            number: schedule.ask(load.0, units),
            has_waited: false,
            turn: None,
            had_ns: 0,
        })
        .collect();
    for now in (0..span_ns).step_by(STEP_NS as usize) {
        for busy in all.iter_mut().filter(|busy| busy.turn.is_none()) {
            let (_, turn_ns, width) = busy.load;
            match schedule.begin(busy.number, busy.has_waited, now) {
                Begin::Now => busy.turn = Some((turn_ns, width)),
                Begin::OnSpare(units) => busy.turn = Some((turn_ns, units.min(width))),
                Begin::Later(_) => busy.has_waited = true,
            }
        }
        let running = all.iter().filter_map(|busy| busy.turn);
        let wanted = running.map(|(_, width)| width).sum::<u64>().max(units);
        for busy in &mut all {
            let Some((left_ns, width)) = &mut busy.turn else {
                continue;
            };
            let part = (STEP_NS * *width / wanted).min(*left_ns);
            *left_ns -= part;
            busy.had_ns += part;
            if *left_ns == 0 {
                let (_, turn_ns, width) = busy.load;
                schedule.renew(busy.number, (turn_ns, width));
                (busy.turn, busy.has_waited) = (None, false);
            }
        }
    }
    for busy in &all {
        assert!(schedule.members.contains_key(&busy.load.0));
        schedule.end(busy.number, 0);
    }
    all.iter().map(|busy| busy.had_ns).collect()
}

fn may_go_on(schedule: &Schedule, number: u64, now_ns: u64) -> bool {
    schedule.may_go_on(now_ns).any(|turn| turn == number)
}

fn shares(had: &[u64]) -> Vec<f64> {
    let all: u64 = had.iter().sum();
    had.iter().map(|ns| *ns as f64 / all as f64).collect()
}

#[test]
fn time_is_shared_by_weight_whatever_a_turn_takes() {
    for turns in [[MS; 4], [MS, 2 * MS, MS / 2, 5 * MS]] {
        let mut schedule = Schedule::new(1);
        let members: Vec<_> = [1, 2, 4, 8]
            .iter()
            .zip(turns)
            .map(|(weight, turn)| (schedule.join(compute(100 * weight)), turn, 1))
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
    let mut schedule = Schedule::new(1);
    let [greedy, other] = [(); 2].map(|()| schedule.join(compute(100)));
    let mut members = vec![(other, MS, 1)];
    members.extend([(greedy, MS, 1); 16]);
    let had = run(&mut schedule, &members, 10_000 * MS);
    let other = shares(&had)[0];
    assert!((other - 0.5).abs() < 0.02, "{other}");
}

#[test]
fn a_cap_holds_without_others() {
    let mut schedule = Schedule::new(1);
    let member = schedule.join(Compute {
        share_percent: Some(25),
        ..Compute::DEFAULT
    });
    let had = run(&mut schedule, &[(member, MS / 4, 1)], 10_000 * MS);
    let share = had[0] as f64 / (10_000 * MS) as f64;
    assert!((share - 0.25).abs() < 0.01, "{share}");
}

#[test]
fn the_cap_of_one_leaves_the_device_to_others() {
    let mut schedule = Schedule::new(1);
    let capped = schedule.join(Compute {
        share_percent: Some(10),
        weight: Some(10_000),
    });
    let other = schedule.join(compute(1));
    let members = [(capped, MS / 4, 1), (other, MS, 1)];
    let had = run(&mut schedule, &members, 10_000 * MS);
    let shares = shares(&had);
    assert!((shares[0] - 0.1).abs() < 0.01, "{shares:?}");
    assert!(had.iter().sum::<u64>() > 9_900 * MS, "{had:?}");
}

#[test]
fn who_was_idle_goes_on_at_once_but_makes_up_for_little() {
    let mut schedule = Schedule::new(1);
    let [greedy, light] = [(); 2].map(|()| schedule.join(compute(100)));
    run(&mut schedule, &[(greedy, MS, 1)], 1000 * MS);
    let asked = schedule.ask(light, 1);
    let behind = schedule.clock - schedule.members[&light].taken;
    assert_eq!(behind, virtual_time(CREDIT_NS, 100), "what it makes up for");
    assert_eq!(schedule.begin(asked, false, 1000 * MS), Begin::Now);
    schedule.end(asked, 0);
    let had = run(&mut schedule, &[(greedy, MS, 1), (light, MS, 1)], 100 * MS);
    assert!(had[0] >= 40 * MS, "{had:?}");
}

#[test]
fn nobody_waits_for_a_turn_that_never_ends() {
    let mut schedule = Schedule::new(1);
    let [endless, other] = [(); 2].map(|()| schedule.join(compute(100)));
    let forever = schedule.ask(endless, 1);
    assert_eq!(schedule.begin(forever, false, 0), Begin::Now);
    let turn = schedule.ask(other, 1);
    assert_eq!(schedule.begin(turn, false, 0), Begin::Now);
    schedule.renew(turn, (2 * LEAD_NS, 1));
    let look_again = Begin::Later(MS + OVERDUE_NS);
    assert_eq!(schedule.begin(turn, false, MS), look_again);
    assert!(!may_go_on(&schedule, turn, OVERDUE_NS - 1));
    assert!(may_go_on(&schedule, turn, OVERDUE_NS));
    assert_eq!(schedule.begin(turn, true, OVERDUE_NS), Begin::Now);
    schedule.leave(endless);
    assert_eq!(schedule.begin(forever, false, MS), Begin::Now, "nobody");
    assert!(schedule.turns.iter().all(|turn| turn.member == other));
}

#[test]
fn who_is_ahead_waits_until_the_other_has_caught_up_or_has_no_work() {
    let mut schedule = Schedule::new(1);
    let [first, second] = [(); 2].map(|()| schedule.join(compute(100)));
    let (ahead, behind) = (schedule.ask(first, 1), schedule.ask(second, 1));
    assert_eq!(schedule.begin(ahead, false, 0), Begin::Now);
    schedule.renew(ahead, (2 * LEAD_NS, 1));
    assert!(matches!(schedule.begin(ahead, false, MS), Begin::Later(_)));
    assert_eq!(schedule.begin(behind, false, MS), Begin::Now);
    schedule.renew(behind, (LEAD_NS, 1));
    assert!(!may_go_on(&schedule, ahead, 2 * MS), "it has waited");
    assert_eq!(schedule.begin(behind, false, 2 * MS), Begin::Now);
    schedule.renew(behind, (LEAD_NS / 2, 1));
    assert!(may_go_on(&schedule, ahead, 3 * MS));
    assert_eq!(schedule.begin(ahead, true, 3 * MS), Begin::Now);
    schedule.renew(ahead, (32 * LEAD_NS, 1));
    assert!(!may_go_on(&schedule, ahead, 4 * MS));
    schedule.end(behind, 0);
    assert!(may_go_on(&schedule, ahead, 5 * MS));
}

/// Runs sessions of these weights on a device of 16 units, of which their kernels have a use for
/// these, and returns the part of the device that each had.
fn parts(loads: &[(u32, u64)]) -> Vec<f64> {
    let mut schedule = Schedule::new(16);
    let loads: Vec<_> = loads
        .iter()
        .map(|(weight, width)| (schedule.join(compute(*weight)), MS * width / 16, *width))
        .collect();
    let had = run(&mut schedule, &loads, 20_000 * MS);
    let part = |ns: &u64| *ns as f64 / (20_000 * MS) as f64;
    had.iter().map(part).collect()
}

fn assert_parts(loads: &[(u32, u64)], wanted: &[f64]) {
    let parts = parts(loads);
    for (part, wanted) in parts.iter().zip(wanted) {
        // Less, because a session behind lets others go on as they catch up with it.
        assert!((part / wanted - 1.).abs() < 0.1, "{loads:?}: {parts:?}");
    }
    assert!(parts.iter().sum::<f64>() > 0.96, "{loads:?}: {parts:?}");
}

#[test]
fn what_a_session_has_no_use_for_goes_to_those_that_wait_and_costs_it_nothing() {
    assert_parts(&[(100, 1), (100, 16)], &[1. / 16., 15. / 16.]);
    assert_parts(&[(800, 12), (100, 16)], &[0.72, 0.28]);
    // The first has a use for more than its part, and has its part.
    assert_parts(&[(100, 12), (100, 16)], &[0.5, 0.5]);
}

#[test]
fn those_that_wait_share_what_is_left_by_weight() {
    let (light, heavy) = (1. / 4., 3. / 4.);
    let left = 15. / 16.;
    assert_parts(
        &[(100, 1), (100, 16), (300, 16)],
        &[1. / 16., left * light, left * heavy],
    );
}

#[test]
fn nobody_knows_what_a_session_without_a_turn_will_have_a_use_for() {
    let mut schedule = Schedule::new(16);
    let [first, second] = [(); 2].map(|()| schedule.join(compute(100)));
    let (ahead, behind) = (schedule.ask(first, 16), schedule.ask(second, 1));
    assert_eq!(schedule.begin(ahead, false, 0), Begin::Now);
    schedule.renew(ahead, (2 * LEAD_NS, 16));
    assert!(!may_go_on(&schedule, ahead, 0));
    assert_eq!(schedule.begin(behind, false, 0), Begin::Now);
    assert!(may_go_on(&schedule, ahead, 0));
    assert_eq!(schedule.begin(ahead, true, 0), Begin::OnSpare(15));
    // Its time on spare units does not put it further ahead.
    schedule.renew(ahead, (32 * LEAD_NS, 16));
    schedule.renew(behind, (LEAD_NS * 3 / 2, 1));
    assert_eq!(schedule.begin(ahead, true, 0), Begin::Now);
}

#[test]
fn years_of_use_are_counted() {
    const YEAR_NS: u64 = 365 * 24 * 3600 * 1_000 * MS;
    let mut schedule = Schedule::new(1);
    let members = [1, 2].map(|weight| schedule.join(compute(weight)));
    let turns = members.map(|member| schedule.ask(member, 1));
    assert_eq!(schedule.begin(turns[0], false, 0), Begin::Now);
    assert_eq!(schedule.begin(turns[1], false, 0), Begin::Now);
    schedule.renew(turns[0], (3 * YEAR_NS, 1));
    schedule.renew(turns[1], (5 * YEAR_NS, 1));
    assert!(matches!(
        schedule.begin(turns[0], false, 1),
        Begin::Later(_)
    ));
    assert_eq!(schedule.begin(turns[1], false, 1), Begin::Now);
    schedule.renew(turns[1], (2 * YEAR_NS, 1));
    assert_eq!(schedule.begin(turns[0], true, 2), Begin::Now);
}
