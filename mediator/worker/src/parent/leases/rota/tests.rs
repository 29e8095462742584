//! Rotas on a simulated device.

use super::member::{PATIENCE_NS, SLICE_NS};
use super::*;

const MS: u64 = 1_000_000;
const STEP_NS: u64 = MS / 50;

fn weight(weight: u32) -> Compute {
    Compute {
        weight: Some(weight),
        ..Compute::DEFAULT
    }
}

fn share(percent: u32) -> Compute {
    Compute {
        share_percent: Some(percent),
        ..Compute::DEFAULT
    }
}

/// A session: how long each of its kernels takes, and how long it rests after each.
struct Load {
    compute: Compute,
    kernel_ns: u64,
    rest_ns: u64,
}

impl Load {
    fn greedy(compute: Compute) -> Self {
        Self {
            compute,
            kernel_ns: MS,
            rest_ns: 0,
        }
    }
}

/// A session at work.
struct Guest {
    load: Load,
    may_submit: bool,
    has_asked: bool,
    /// Number of its lease.
    number: u32,
    /// When it is to stop.
    due_ns: Option<u64>,
    stopped: bool,
    /// What is left of the kernel under way.
    left_ns: u64,
    rests_until_ns: u64,
    wanted_since_ns: Option<u64>,
    had_ns: u64,
    orders: u64,
    longest_wait_ns: u64,
}

impl Guest {
    fn new(load: Load) -> Self {
        Self {
            load,
            may_submit: true,
            has_asked: false,
            number: 0,
            due_ns: None,
            stopped: false,
            left_ns: 0,
            rests_until_ns: 0,
            wanted_since_ns: None,
            had_ns: 0,
            orders: 0,
            longest_wait_ns: 0,
        }
    }

    fn obey(&mut self, order: LeaseOrder, now_ns: u64) {
        self.orders += 1;
        match order {
            LeaseOrder::Free => self.may_submit = true,
            LeaseOrder::Ask => (self.may_submit, self.stopped, self.number) = (false, true, 0),
            LeaseOrder::Grant(number) => {
                (self.may_submit, self.has_asked, self.due_ns) = (true, false, None);
                (self.stopped, self.number) = (false, number);
            }
            LeaseOrder::Return(within) => {
                self.due_ns = Some(now_ns + within.as_nanos() as u64);
            }
        }
    }

    /// What it reports at a time.
    fn report(&mut self, now_ns: u64) -> Option<LeaseReport> {
        let wants = now_ns >= self.rests_until_ns && self.left_ns == 0;
        if self.stopped && self.load.rest_ns == 0 && !self.has_asked {
            // It has more work than what is under way.
            self.has_asked = true;
            return Some(LeaseReport::Wanted);
        }
        if self.stopped && self.left_ns == 0 {
            self.stopped = false;
            return Some(LeaseReport::Returned(self.number));
        }
        if self.may_submit
            && self
                .due_ns
                .is_some_and(|due_ns| due_ns <= now_ns || !wants && self.left_ns == 0)
        {
            (self.may_submit, self.due_ns) = (false, None);
            self.stopped = self.left_ns != 0;
            return Some(match self.stopped {
                true => LeaseReport::Stopped(self.number),
                false => LeaseReport::Returned(self.number),
            });
        }
        if wants {
            self.wanted_since_ns.get_or_insert(now_ns);
        }
        if wants && !self.may_submit && !self.has_asked {
            self.has_asked = true;
            return Some(LeaseReport::Wanted);
        }
        if wants && self.may_submit {
            self.left_ns = self.load.kernel_ns;
        }
        None
    }

    fn execute(&mut self, part_ns: u64, now_ns: u64) {
        let part_ns = part_ns.min(self.left_ns);
        self.had_ns += part_ns;
        self.left_ns -= part_ns;
        if self.left_ns == 0 && part_ns != 0 {
            let wanted_ns = self.wanted_since_ns.take().unwrap_or(now_ns);
            // At first all have work under way that they began without a lease.
            if now_ns > 100 * MS {
                self.longest_wait_ns = self.longest_wait_ns.max(now_ns - wanted_ns);
            }
            self.rests_until_ns = now_ns + self.load.rest_ns;
        }
    }
}

/// A device that works for one session at a time. It turns to the next session with work after a
/// slice, or when the present one has no work.
#[derive(Default)]
struct Device {
    at: usize,
    slice_ns: u64,
}

impl Device {
    /// Works for a step, which ends at `end_ns`.
    fn execute(&mut self, guests: &mut [Guest], end_ns: u64) {
        if self.slice_ns == 0 || guests[self.at].left_ns == 0 {
            let after = (1..=guests.len()).map(|step| (self.at + step) % guests.len());
            let Some(next) = after.into_iter().find(|at| guests[*at].left_ns != 0) else {
                return;
            };
            (self.at, self.slice_ns) = (next, SLICE_NS);
        }
        self.slice_ns -= STEP_NS;
        guests[self.at].execute(STEP_NS, end_ns);
    }
}

/// Runs sessions for `span_ns`, and returns them.
fn run(loads: Vec<Load>, span_ns: u64) -> (Rota, Vec<Guest>) {
    let mut rota = Rota::default();
    let mut guests: Vec<_> = loads.into_iter().map(Guest::new).collect();
    for (number, guest) in (0..).zip(&guests) {
        rota.join(number, guest.load.compute);
        rota.set_present(number, true);
    }
    let mut device = Device::default();
    for now_ns in (0..span_ns).step_by(STEP_NS as usize) {
        for (number, guest) in (0..).zip(&mut guests) {
            if let Some(report) = guest.report(now_ns) {
                rota.told(number, report, now_ns);
            }
        }
        let (orders, next_ns) = rota.decide(now_ns);
        assert!(next_ns.is_none_or(|next_ns| next_ns > now_ns), "{rota:?}");
        for (number, order) in orders {
            guests[number as usize].obey(order, now_ns);
        }
        device.execute(&mut guests, now_ns + STEP_NS);
    }
    (rota, guests)
}

fn shares(guests: &[Guest]) -> Vec<f64> {
    let all: u64 = guests.iter().map(|guest| guest.had_ns).sum();
    guests
        .iter()
        .map(|guest| guest.had_ns as f64 / all as f64)
        .collect()
}

#[track_caller]
fn assert_near(value: f64, wanted: f64, part: f64) {
    assert!((value / wanted - 1.0).abs() < part, "{value}, not {wanted}");
}

#[test]
fn time_is_shared_out_by_weight_and_none_is_lost() {
    let loads = [1, 2, 4, 8].map(|it| Load::greedy(weight(it)));
    let (rota, guests) = run(loads.into(), 10_000 * MS);
    for (share, wanted) in shares(&guests).iter().zip([1.0, 2.0, 4.0, 8.0]) {
        assert_near(*share, wanted / 15.0, 0.02);
    }
    let all: u64 = guests.iter().map(|guest| guest.had_ns).sum();
    assert_near(all as f64, 10_000.0 * MS as f64, 0.01);
    for (number, guest) in (0..).zip(&guests) {
        assert_near(rota.used_ns(number) as f64, guest.had_ns as f64, 0.03);
    }
}

#[test]
fn kernels_of_different_lengths_make_little_difference() {
    let long = Load {
        kernel_ns: 9 * MS,
        ..Load::greedy(weight(5))
    };
    let (_, guests) = run(vec![long, Load::greedy(weight(5))], 4000 * MS);
    assert_near(shares(&guests)[0], 0.5, 0.12);
}

#[test]
fn who_is_alone_hears_nothing_unless_it_has_a_cap() {
    let (_, guests) = run(vec![Load::greedy(weight(7))], 100 * MS);
    assert_eq!(guests[0].orders, 0);
    let usual = Load::greedy(Compute::DEFAULT);
    let (_, guests) = run(vec![Load::greedy(weight(7)), usual], 100 * MS);
    assert_eq!([guests[0].orders, guests[1].orders], [0, 0]);
}

#[test]
fn who_has_work_alone_keeps_the_device_without_a_word() {
    let idle = Load {
        rest_ns: u64::MAX / 2,
        ..Load::greedy(weight(1))
    };
    let (_, guests) = run(vec![Load::greedy(weight(1)), idle], 400 * MS);
    // It is told to ask, is granted the device twice, and asked back once.
    assert!(guests[0].orders <= 5, "{}", guests[0].orders);
    assert!(guests[0].had_ns > 397 * MS);
}

#[test]
fn a_cap_holds_even_if_nobody_else_has_work() {
    for percent in [1, 25, 60] {
        let (_, guests) = run(vec![Load::greedy(share(percent))], 4000 * MS);
        let wanted_ns = 40 * MS * u64::from(percent);
        // What it had saved up at first may have gone or come back.
        let differs_ns = guests[0].had_ns.abs_diff(wanted_ns);
        assert!(differs_ns <= 21 * MS, "{percent} %: {differs_ns} ns");
    }
}

#[test]
fn a_session_with_little_work_goes_first() {
    let light = || Load {
        kernel_ns: MS,
        rest_ns: 12 * MS,
        ..Load::greedy(weight(1))
    };
    let greedy = || Load::greedy(weight(1));
    let (_, guests) = run(vec![light(), greedy()], 2000 * MS);
    assert!(
        guests[0].longest_wait_ns < 4 * MS,
        "{}",
        guests[0].longest_wait_ns
    );
    let mut loads = vec![light()];
    loads.extend((0..7).map(|_| greedy()));
    let (_, guests) = run(loads, 2000 * MS);
    assert!(
        guests[0].longest_wait_ns < 4 * MS,
        "{}",
        guests[0].longest_wait_ns
    );
}

#[test]
fn nobody_waits_for_work_that_does_not_end() {
    let endless = Load {
        kernel_ns: u64::MAX,
        ..Load::greedy(weight(1))
    };
    let others = || Load::greedy(weight(1));
    let (_, guests) = run(vec![endless, others(), others()], 1000 * MS);
    for guest in &guests[1..] {
        // A third of the time goes on the endless one, as the device divides itself.
        assert!(guest.had_ns > 200 * MS, "{}", guest.had_ns);
        assert!(guest.longest_wait_ns < 30 * MS, "{}", guest.longest_wait_ns);
    }
}

#[test]
fn a_session_that_says_nothing_is_waited_for_no_longer() {
    let mut rota = Rota::default();
    for number in [1, 2] {
        rota.join(number, weight(1));
        rota.set_present(number, true);
    }
    rota.decide(0);
    assert!(rota.told(1, LeaseReport::Wanted, 0));
    assert!(rota.told(2, LeaseReport::Wanted, 0));
    let (orders, next_ns) = rota.decide(0);
    assert_eq!(orders[0], (1, LeaseOrder::Grant(1)));
    let late_ns = next_ns.unwrap();
    assert_eq!(late_ns, LEAD_NS + PATIENCE_NS);
    let (orders, _) = rota.decide(late_ns);
    assert_eq!(orders[0], (2, LeaseOrder::Grant(1)));
    // What it cannot be saying changes nothing.
    assert!(!rota.told(1, LeaseReport::Stopped(1), late_ns));
    assert!(!rota.told(1, LeaseReport::Returned(2), late_ns));
    assert!(!rota.told(7, LeaseReport::Wanted, late_ns));
    assert_eq!(rota.decide(late_ns).0, []);
    rota.leave(2);
    assert_eq!(rota.compute(2), Compute::DEFAULT, "it is no member");
    rota.set_present(1, false);
    assert_eq!(rota.decide(late_ns + 1), (vec![], None));
}

#[test]
fn years_of_use_are_counted() {
    const YEAR_NS: u64 = 365 * 24 * 3600 * 1_000 * MS;
    let mut rota = Rota::default();
    for (number, compute) in [(1, weight(1)), (2, weight(2))] {
        rota.join(number, compute);
        rota.set_present(number, true);
    }
    rota.decide(0);
    for number in [1, 2] {
        rota.told(number, LeaseReport::Returned(0), 0);
        rota.told(number, LeaseReport::Wanted, 0);
    }
    rota.decide(0);
    rota.told(1, LeaseReport::Returned(1), 3 * YEAR_NS);
    assert_eq!(rota.used_ns(1), 3 * YEAR_NS);
    assert_eq!(rota.decide(3 * YEAR_NS).0, [(2, LeaseOrder::Grant(1))]);
    // The second one may have twice as much before it is the first one's turn.
    rota.told(1, LeaseReport::Wanted, 3 * YEAR_NS);
    let (orders, _) = rota.decide(3 * YEAR_NS);
    let [(2, LeaseOrder::Return(within))] = orders[..] else {
        panic!("{orders:?}");
    };
    assert!(within >= Duration::from_nanos(6 * YEAR_NS), "{within:?}");
}

#[test]
fn what_a_session_may_have_changes_while_it_works() {
    let mut rota = Rota::default();
    for number in [1, 2] {
        rota.join(number, Compute::DEFAULT);
        rota.set_present(number, true);
    }
    assert_eq!(rota.decide(0).0, []);
    rota.set(1, weight(3));
    assert_eq!(rota.decide(1).0, [], "one weight is none");
    rota.set(2, weight(1));
    let asks = [(1, LeaseOrder::Ask), (2, LeaseOrder::Ask)];
    assert_eq!(rota.decide(2).0, asks);
    rota.set(2, Compute::DEFAULT);
    let frees = [(1, LeaseOrder::Free), (2, LeaseOrder::Free)];
    assert_eq!(rota.decide(3).0, frees);
    rota.set(1, share(50));
    assert_eq!(rota.decide(4).0, [(1, LeaseOrder::Ask)]);
    assert_eq!(rota.compute(1), share(50));
    assert_eq!(rota.compute(9), Compute::DEFAULT);
}

#[test]
fn a_session_with_little_work_goes_first_whatever_the_weights_are() {
    for weights in [[4, 1], [1, 4], [10_000, 1]] {
        let light = Load {
            kernel_ns: MS / 2,
            rest_ns: 20 * MS,
            ..Load::greedy(weight(weights[0]))
        };
        let (_, guests) = run(vec![light, Load::greedy(weight(weights[1]))], 2000 * MS);
        let longest_ns = guests[0].longest_wait_ns;
        assert!(longest_ns < 3 * MS, "{weights:?}: {longest_ns}");
    }
}

#[test]
fn a_cap_holds_beside_a_session_that_keeps_the_device_without_work() {
    let idle = |compute| Load {
        rest_ns: u64::MAX / 2,
        ..Load::greedy(compute)
    };
    let loads = vec![idle(weight(1)), idle(weight(1)), Load::greedy(share(25))];
    let (_, guests) = run(loads, 4000 * MS);
    let differs_ns = guests[2].had_ns.abs_diff(1000 * MS);
    assert!(differs_ns < 40 * MS, "{}", guests[2].had_ns);
}

#[test]
fn what_a_cap_owes_is_limited() {
    let mut rota = Rota::default();
    rota.join(1, share(10));
    rota.set_present(1, true);
    rota.decide(0);
    rota.told(1, LeaseReport::Returned(0), 0);
    rota.told(1, LeaseReport::Wanted, 0);
    assert_eq!(rota.decide(0).0[0], (1, LeaseOrder::Grant(1)));
    // A kernel of an hour costs ten seconds.
    let hour_ns = 3600 * 1000 * MS;
    rota.told(1, LeaseReport::Returned(1), hour_ns);
    assert_eq!(rota.decide(hour_ns), (vec![], None), "it wants nothing");
    rota.told(1, LeaseReport::Wanted, hour_ns);
    let (orders, next_ns) = rota.decide(hour_ns);
    assert_eq!(orders, []);
    let waits_ns = next_ns.unwrap() - hour_ns;
    assert!((10_000 * MS..10_200 * MS).contains(&waits_ns), "{waits_ns}");
}

#[test]
fn work_under_way_may_wait_for_the_next_lease() {
    let mut rota = Rota::default();
    for number in [1, 2] {
        rota.join(number, weight(1));
        rota.set_present(number, true);
    }
    rota.decide(0);
    rota.told(2, LeaseReport::Returned(0), 0);
    for number in [1, 2] {
        rota.told(number, LeaseReport::Wanted, 0);
    }
    // Though it may still have work of before.
    assert_eq!(rota.decide(0).0[0], (1, LeaseOrder::Grant(1)));
    rota.told(1, LeaseReport::Wanted, MS);
    assert!(!rota.told(1, LeaseReport::Stopped(7), MS), "another lease");
    rota.told(1, LeaseReport::Stopped(1), MS);
    assert_eq!(rota.decide(MS).0[0], (2, LeaseOrder::Grant(1)));
    rota.told(2, LeaseReport::Returned(1), 2 * MS);
    // It may end by itself, as most work does.
    assert_eq!(rota.decide(2 * MS), (vec![], Some(MS + PATIENCE_NS)));
    let now_ns = MS + PATIENCE_NS;
    assert_eq!(rota.decide(now_ns).0, [(1, LeaseOrder::Grant(2))]);
    // This crossed the grant.
    assert!(!rota.told(1, LeaseReport::Returned(1), now_ns));
}

#[test]
fn who_has_closed_takes_no_turns() {
    let mut rota = Rota::default();
    for number in [1, 2] {
        rota.join(number, weight(1));
        rota.set_present(number, true);
    }
    assert_eq!(rota.decide(0).0.len(), 2);
    // One whose process is away for a moment does.
    rota.set_present(2, false);
    assert_eq!(rota.decide(1).0, []);
    rota.close(2);
    assert_eq!(rota.decide(2).0, [(1, LeaseOrder::Free)]);
    assert_eq!(rota.compute(2), weight(1));
}

#[test]
fn only_a_session_that_has_had_less_than_its_share_is_fresh() {
    let told = |floor| {
        let mut member = Member::new(weight(1), 0);
        assert!(member.told(LeaseReport::Wanted, floor, 0));
        assert!(!member.told(LeaseReport::Wanted, floor, 0), "it has asked");
        (member.is_fresh, member.taken)
    };
    let credit = Member::new(weight(1), 0).virtual_time(CREDIT_NS);
    assert_eq!(told(credit), (false, 0));
    assert_eq!(told(credit + 1), (true, 1));
}

/// Sessions of weight 1, numbered from 1, none of which has work under way.
fn idle(count: u64) -> Rota {
    let mut rota = Rota::default();
    for number in 1..=count {
        rota.join(number, weight(1));
        rota.set_present(number, true);
    }
    rota.decide(0);
    for number in 1..=count {
        assert!(rota.told(number, LeaseReport::Returned(0), 0));
    }
    rota
}

#[test]
fn a_time_to_return_that_is_a_little_earlier_is_not_told_again() {
    for (earlier_ns, is_told) in [(LEAD_NS / 50, false), (LEAD_NS / 50 + 1, true)] {
        let mut rota = idle(3);
        rota.told(2, LeaseReport::Wanted, 0);
        assert_eq!(rota.decide(0).0, [(2, LeaseOrder::Grant(1))]);
        let now_ns = earlier_ns;
        rota.told(2, LeaseReport::Returned(1), now_ns);
        assert_eq!(rota.used_ns(2), 0, "nobody waited for it");
        rota.told(1, LeaseReport::Wanted, now_ns);
        assert_eq!(rota.decide(now_ns).0, [(1, LeaseOrder::Grant(1))]);
        rota.told(2, LeaseReport::Wanted, now_ns);
        let within = Duration::from_nanos(LEAD_NS + earlier_ns);
        assert_eq!(rota.decide(now_ns).0, [(1, LeaseOrder::Return(within))]);
        // What it lacks more than the second is what the second has had.
        rota.told(3, LeaseReport::Wanted, now_ns);
        let within = Duration::from_nanos(LEAD_NS);
        let told = is_told.then_some((1, LeaseOrder::Return(within)));
        assert_eq!(rota.decide(now_ns).0, Vec::from_iter(told));
    }
}

#[test]
fn who_was_without_work_for_long_goes_first_but_has_no_more_for_it() {
    let mut rota = idle(2);
    rota.told(1, LeaseReport::Wanted, 0);
    assert_eq!(rota.decide(0).0, [(1, LeaseOrder::Grant(1))]);
    let now_ns = 1000 * MS;
    rota.told(2, LeaseReport::Wanted, now_ns);
    let at_once = LeaseOrder::Return(Duration::ZERO);
    assert_eq!(rota.decide(now_ns).0, [(1, at_once)]);
    rota.told(1, LeaseReport::Returned(1), now_ns);
    assert_eq!(rota.decide(now_ns).0, [(2, LeaseOrder::Grant(1))]);
    rota.told(1, LeaseReport::Wanted, now_ns);
    let within = Duration::from_nanos(CREDIT_NS + LEAD_NS);
    assert_eq!(rota.decide(now_ns).0, [(2, LeaseOrder::Return(within))]);
}

#[test]
fn the_last_work_of_a_lease_is_charged_to_nobody_else() {
    let mut rota = idle(2);
    rota.told(1, LeaseReport::Wanted, 0);
    rota.told(2, LeaseReport::Wanted, 0);
    assert_eq!(rota.decide(0).0[0], (1, LeaseOrder::Grant(1)));
    rota.told(1, LeaseReport::Stopped(1), MS);
    assert_eq!(rota.decide(MS).0, [(2, LeaseOrder::Grant(1))]);
    rota.decide(MS + SLICE_NS - 1);
    assert_eq!([1, 2].map(|it| rota.used_ns(it)), [MS + SLICE_NS - 1, 0]);
    // From then on the device turns from one to the other.
    rota.decide(MS + SLICE_NS + 9);
    assert_eq!([1, 2].map(|it| rota.used_ns(it)), [MS + SLICE_NS + 4, 5]);
}
