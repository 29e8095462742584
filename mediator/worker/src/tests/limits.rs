//! Limits that change while guests use their workers.

use std::time::{Duration, Instant};

use causeway_mediator::share::TokenBytes;
use causeway_mediator::{Compute, GuestSession, InForce, LimitChange, LimitError, Quota};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::registers::status;
use rustix::io::Errno;
use rustix::process::{Signal, test_kill_process};

use super::puppet::{self, Act, Puppet};
use super::rig::{Guest, PAGE, eventually, program, workers};
use crate::Workers;
use crate::wire::{Kind, Outcome};

fn memory(memory_bytes: u64) -> LimitChange {
    LimitChange {
        memory_bytes: Some(memory_bytes),
        ..LimitChange::default()
    }
}

fn limit_of(guest: &Guest) -> u64 {
    guest.attributes().memory_bytes
}

#[test]
fn new_limits_hold_in_the_worker_and_in_those_that_take_its_place() {
    let guest = Guest::open(&workers());
    let held = guest.memory(MemoryKind::Host, 8 * PAGE);
    assert_eq!(
        guest.session.set_limits(&memory(4 * PAGE)),
        Ok(InForce::AtOnce)
    );
    assert_eq!(limit_of(&guest), 4 * PAGE);
    let refused = guest.allocate(MemoryKind::Host, PAGE).unwrap_err();
    assert_eq!(refused, (Status::QuotaBytes, 0));
    guest.free(held).unwrap();
    guest.page();
    let statistics = guest.session.activity().unwrap().statistics;
    assert_eq!(statistics.memory_limit_bytes, 4 * PAGE);

    guest.signal(Signal::KILL);
    eventually("the device is lost", || {
        guest.session.status_bits() == status::LOST
    });
    let lost = guest.session.set_limits(&memory(6 * PAGE));
    assert_eq!(lost, Ok(InForce::AtOnce), "nobody is there to be told");
    let statistics = guest.session.activity().unwrap().statistics;
    assert_eq!(statistics.memory_limit_bytes, 6 * PAGE, "it is shown");
    guest.session.reset();
    guest.hello();
    assert_eq!(limit_of(&guest), 6 * PAGE);
    assert_eq!(guest.session.limits().memory_bytes, 6 * PAGE);
    guest.memory(MemoryKind::Host, 6 * PAGE);
}

#[test]
fn limits_that_change_while_a_worker_starts_hold_in_it() {
    let slow = Workers::new(&program("rig::worker_process", "slow"), None).unwrap();
    let guest = Guest::open(&slow);
    guest.signal(Signal::KILL);
    eventually("the device is lost", || {
        guest.session.status_bits() == status::LOST
    });
    std::thread::scope(|scope| {
        let reset = scope.spawn(|| guest.session.reset());
        // The start takes half a second.
        std::thread::sleep(Duration::from_millis(250));
        guest.session.set_limits(&memory(4 * PAGE)).unwrap();
        assert!(!reset.is_finished(), "it has begun too late");
        reset.join().unwrap();
    });
    guest.hello();
    assert_eq!(limit_of(&guest), 4 * PAGE);
}

#[test]
fn limits_that_the_back_end_does_not_have_are_refused() {
    let guest = Guest::open(&workers());
    // As much as the back end of the rig has.
    assert_eq!(guest.session.check_limits(&memory(256 << 20)), Ok(()));
    let too_much = LimitChange {
        allocations: Some(1),
        ..memory(257 << 20)
    };
    let refused = guest.session.set_limits(&too_much);
    assert!(matches!(refused, Err(LimitError::Memory { .. })));
    assert_eq!(guest.session.limits(), Quota::default());
}

#[test]
fn a_worker_that_does_not_answer_is_told_when_it_goes_on() {
    let guest = Guest::open(&workers());
    guest.works();
    guest.stop();
    let begun = Instant::now();
    // More than fit the socket.
    for pages in 1..=300 {
        let told = guest.session.set_limits(&memory(pages * PAGE));
        assert_eq!(told, Ok(InForce::Later));
    }
    // Each waits a tenth of a second, and only where the socket is full.
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(guest.session.limits().memory_bytes, 300 * PAGE);
    guest.signal(Signal::CONT);
    eventually("the worker answers", || guest.session.activity().is_some());
    assert_eq!(limit_of(&guest), 300 * PAGE);
    assert_eq!(
        guest.session.set_limits(&memory(64 * PAGE)),
        Ok(InForce::AtOnce)
    );
    test_kill_process(guest.pid()).unwrap();
    guest.works();
}

#[test]
fn what_a_worker_says_of_its_limits_is_not_believed() {
    let workers = puppet::workers();
    let puppet = Puppet::open(&workers, Quota::default());
    let place = |bytes| {
        puppet.tell(Act::Make, bytes);
        puppet.tell(Act::Place, bytes)
    };
    let is_done = |outcome: puppet::Outcome| outcome.outcome == Outcome::Done as u32;
    assert!(is_done(place(4 * PAGE)));
    // It says that it keeps to them, and does not.
    let lowered = puppet.session.set_limits(&memory(PAGE));
    assert_eq!(lowered, Ok(InForce::AtOnce));
    let refused = place(PAGE);
    assert!(!is_done(refused), "{refused:?}");
    assert_eq!(refused.errno, Errno::NOMEM.raw_os_error().unsigned_abs());
    assert_eq!(puppet.host.placements().len(), 1, "it keeps what it has");
    puppet.session.set_limits(&memory(5 * PAGE)).unwrap();
    assert!(is_done(place(PAGE)) && !is_done(place(PAGE)));
    // The number of exports is not that of objects.
    let few = LimitChange {
        memory_bytes: Some(8 << 30),
        allocations: Some(1),
        ..LimitChange::default()
    };
    puppet.session.set_limits(&few).unwrap();
    puppet.export(PAGE, Access::Read);
    puppet.tell(Act::Make, PAGE);
    let refused = puppet.act(Act::Publish, PAGE, Access::Read, TokenBytes::default());
    assert_eq!(refused.outcome, Status::QuotaObjects as u32);
}

#[test]
fn a_worker_whose_work_does_not_end_within_its_timeout_is_lost() {
    let workers = puppet::workers();
    let puppet = Puppet::open(&workers, Quota::default());
    let timeout = LimitChange {
        work_ms: Some(40),
        ..LimitChange::default()
    };
    let idle = Puppet::open(&workers, Quota::default());
    idle.session.set_limits(&timeout).unwrap();
    let begun = Instant::now();
    puppet.session.set_limits(&timeout).unwrap();
    puppet.tell(Act::BeginWork, 1);
    eventually("the loss", || puppet.session.status_bits() == status::LOST);
    assert!(begun.elapsed() > Duration::from_millis(40));
    let fault = puppet.session.fault().unwrap();
    assert_eq!(fault.status, Status::Overdue, "{fault}");
    assert!(fault.text.contains("timeout=40"), "{fault}");
    assert_ne!(idle.session.status_bits(), status::LOST);
}

#[test]
fn a_worker_is_told_of_the_lender_once_and_only_if_its_session_has_a_weight_or_a_cap() {
    let workers = puppet::workers();
    let heard = |puppet: &Puppet, kind| puppet.tell(Act::Heard, kind as u64).value;
    let lenders = |puppet: &Puppet| {
        // The interrupt is sent last: all earlier datagrams have arrived when it has.
        puppet.session.interrupt();
        let is_interrupted = || heard(puppet, Kind::Interrupt) == 1;
        eventually("the interrupt", is_interrupted);
        heard(puppet, Kind::NewLease)
    };
    assert_eq!(lenders(&Puppet::open(&workers, Quota::default())), 0);
    let weight = |weight| Quota {
        compute: Compute {
            weight: Some(weight),
            ..Compute::DEFAULT
        },
        ..Quota::default()
    };
    let puppet = Puppet::open(&workers, weight(1));
    let change = LimitChange {
        weight: Some(Some(3)),
        ..LimitChange::default()
    };
    puppet.session.set_limits(&change).unwrap();
    assert_eq!(puppet.session.limits(), weight(3));
    assert_eq!(lenders(&puppet), 1);
}
