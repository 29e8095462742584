//! Turns of real threads.

use super::*;

const NEVER: fn() -> bool = || false;
const NOTHING: Usage = Usage {
    busy_ns: 0,
    elapsed_ns: 0,
    wanted_ns: 0,
};
/// More than a session may be ahead, on two units.
const MUCH: Usage = Usage {
    busy_ns: 2_000_000_000,
    elapsed_ns: 1_000_000_000,
    wanted_ns: 2_000_000_000,
};

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
    assert_eq!(second.take(NOTHING, NEVER), Taken::AtOnce);
    let member = Arc::clone(&second.member);
    thread::scope(|scope| {
        let waits = scope.spawn(|| second.take(MUCH, NEVER));
        while arbiter.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        member.change(|_| Compute::DEFAULT);
        assert!(matches!(waits.join().unwrap(), Taken::After(_)));
    });
    assert!(!second.is_due());
}

#[test]
fn who_is_ahead_waits_until_the_other_has_no_work() {
    let arbiter = Arbiter::new(2);
    let (mut first, mut second) = (turns(&arbiter), turns(&arbiter));
    assert_eq!(first.take(NOTHING, NEVER), Taken::AtOnce);
    assert_eq!(second.take(NOTHING, NEVER), Taken::AtOnce);
    assert!(!first.is_due());
    thread::sleep(QUANTUM);
    assert!(first.is_due(), "it tells what it has used");
    second.end(NOTHING);
    assert_eq!(first.take(MUCH, NEVER), Taken::AtOnce, "it is alone");
    // The other one now begins where the first one is, but for a little.
    assert_eq!(second.take(NOTHING, NEVER), Taken::AtOnce);
    assert_eq!(second.take(MUCH, || true), Taken::Never);
    assert!(arbiter.state.lock().waiting.is_empty());
    thread::scope(|scope| {
        let waits = scope.spawn(|| second.take(NOTHING, NEVER));
        while arbiter.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        first.end(NOTHING);
        assert!(matches!(waits.join().unwrap(), Taken::After(_)));
    });
    assert!(second.held.is_some());
}

#[test]
fn nobody_waits_for_a_consumer_that_was_dropped() {
    let arbiter = Arbiter::new(2);
    let (mut first, mut second) = (turns(&arbiter), turns(&arbiter));
    // Its session goes on.
    let _member = Arc::clone(&first.member);
    assert_eq!(first.take(NOTHING, NEVER), Taken::AtOnce);
    assert_eq!(second.take(NOTHING, NEVER), Taken::AtOnce);
    // From now on it would wait for the first.
    second.take(MUCH, || true);
    drop(first);
    assert_eq!(second.take(NOTHING, || true), Taken::AtOnce);
}

#[test]
fn who_is_ahead_has_the_units_that_others_leave_until_they_have_no_work() {
    let (arbiter, mut first) = loop {
        let arbiter = Arbiter::new(4);
        let (mut first, mut second) = (turns(&arbiter), turns(&arbiter));
        let narrow = Usage {
            busy_ns: 1,
            elapsed_ns: 1,
            wanted_ns: 1,
        };
        let begun = Instant::now();
        for usage in [NOTHING, narrow] {
            assert_eq!(second.take(usage, NEVER), Taken::AtOnce);
        }
        assert_eq!(first.take(NOTHING, NEVER), Taken::AtOnce);
        assert_eq!(first.granted_units(), 4);
        let much = Usage {
            busy_ns: 4 * MUCH.busy_ns,
            wanted_ns: 4 * MUCH.elapsed_ns,
            ..MUCH
        };
        assert_eq!(first.take(much, NEVER), Taken::AtOnce);
        // Nobody waits for a turn that is overdue: on a busy host, this thread came too late.
        if begun.elapsed() < Duration::from_nanos(schedule::OVERDUE_NS) {
            assert_eq!(first.granted_units(), 3);
            break (arbiter, first);
        }
    };
    assert_eq!(
        arbiter.weighted.load(Ordering::Relaxed),
        1,
        "the other left"
    );
    thread::sleep(QUANTUM);
    assert!(first.is_due(), "for the fourth unit");
    assert_eq!(first.take(NOTHING, NEVER), Taken::AtOnce);
    assert_eq!(first.granted_units(), 4);
}

#[test]
fn work_that_did_not_have_the_processor_tells_nothing_of_its_width() {
    let mut turns = turns(&Arbiter::new(4));
    assert_eq!(turns.take(NOTHING, NEVER), Taken::AtOnce);
    for (busy_ns, width) in [(5, 1), (4, 4)] {
        let usage = Usage {
            busy_ns,
            elapsed_ns: 10,
            wanted_ns: 10,
        };
        assert_eq!(turns.take(usage, NEVER), Taken::AtOnce);
        assert_eq!(turns.width, width, "{busy_ns} ns");
    }
    assert_eq!(turns.device_ns(MUCH), 500_000_000, "of all four units");
}

#[test]
fn many_consumers_take_turns_and_none_sleeps_for_ever() {
    let arbiter = Arbiter::new(2);
    thread::scope(|scope| {
        for used_ns in [1, 2_000_000, 9_000_000, 2_000_000, 1, 20_000_000] {
            let mut turns = turns(&arbiter);
            let usage = Usage {
                busy_ns: used_ns,
                elapsed_ns: used_ns,
                wanted_ns: used_ns,
            };
            scope.spawn(move || {
                for round in 0..100 {
                    assert_ne!(turns.take(usage, NEVER), Taken::Never);
                    if round % 3 == 0 {
                        turns.end(usage);
                    }
                }
            });
        }
    });
    assert!(arbiter.state.lock().waiting.is_empty());
}
