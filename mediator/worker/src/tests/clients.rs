//! Clients of a session in a worker.

use std::time::Duration;

use causeway_mediator::GuestSession;
use causeway_protocol::message::{Empty, HandleRequest, Notify, NotifyReply, Opcode, Status};
use causeway_protocol::registers::status;
use rustix::process::Signal;
use zerocopy::IntoBytes;

use super::rig::{Guest, PAGE, eventually, program, release, workers};
use crate::Workers;

#[test]
fn clients_own_end_and_are_interrupted_across_processes() {
    let workers = workers();
    let first = Guest::open(&workers);
    let (one, other) = (first.beside(1), first.beside(40));
    let theirs = one.page();
    assert!(one.owns() && !other.owns() && !first.owns());
    let request = HandleRequest {
        handle: theirs,
        reserved: 0,
    };
    let refused = other.ask::<_, Empty>(Opcode::Free, &request);
    assert_eq!(refused, Err((Status::BadHandle, theirs)));

    let space = other.space();
    let (address, _memory) = other.buffer(space, PAGE);
    let mut queue = other.command_buffer(space);
    let request = Notify {
        space,
        address,
        value: 7,
        ..Notify::default()
    };
    let reply: NotifyReply = other.ask(Opcode::Notify, &request).unwrap();
    assert_eq!(reply.reached, 0);
    queue.submit(&[release(address, 7).as_bytes()]);
    eventually("the interrupt", || other.host.take_interrupt(other.client));
    assert!(!other.host.take_interrupt(one.client));

    other
        .ask::<_, NotifyReply>(
            Opcode::Notify,
            &Notify {
                value: 9,
                ..request
            },
        )
        .unwrap();
    let placed = other.host.placements().len();
    one.session.reset_client(one.client);
    assert!(!one.owns() && other.owns());
    assert_eq!(other.host.placements().len(), placed);
    other.session.reset_client(other.client);
    assert!(other.host.placements().is_empty() && other.host.doorbells().is_empty());
    assert!(!other.owns() && other.try_space().is_err());
    assert!(!other.host.take_interrupt(other.client));
    first.works();
    assert_eq!(first.session.report().statistics.interrupts, 1);
}

#[test]
fn nobody_owns_anything_in_a_closed_session() {
    let workers = workers();
    let first = Guest::open(&workers);
    let (one, other) = (first.beside(1), first.beside(2));
    one.page();
    other.space();
    first.signal(Signal::KILL);
    eventually("loss", || first.session.status_bits() == status::LOST);
    one.session.reset_client(one.client);
    assert!(other.owns(), "it has not reset");
    first.session.close();
    assert!(!other.owns());
}

#[test]
fn a_lost_worker_is_replaced_when_the_last_client_has_given_up() {
    let workers = workers();
    let first = Guest::open(&workers);
    let (one, other) = (first.beside(1), first.beside(2));
    one.page();
    other.space();
    let old = first.pid();
    first.signal(Signal::KILL);
    eventually("loss", || first.session.status_bits() == status::LOST);
    assert!(one.owns() && other.owns(), "as far as anyone knows");
    assert_eq!(one.try_space(), Err((Status::DeviceLost, 0)));
    one.session.reset_client(one.client);
    assert_eq!(one.session.status_bits(), status::LOST);
    assert!(!one.owns() && other.owns());
    other.session.reset_client(other.client);
    assert_eq!(one.session.status_bits(), status::READY);
    assert_ne!(first.pid(), old);
    assert_eq!(first.session.owners(), 0);
    for guest in [&first, &one, &other] {
        guest.hello();
        guest.works();
    }
    // A worker that does not answer is as good as none.
    first.stop();
    one.session.reset_client(one.client);
    assert_eq!(one.session.status_bits(), status::LOST);
    for guest in [&first, &other] {
        guest.session.reset_client(guest.client);
    }
    assert_eq!(first.session.status_bits(), status::READY);
    first.hello();
    first.works();
    let limit = Duration::from_millis(1);
    assert!(first.wait(0, 0, 1, limit).is_err());
}

#[test]
fn a_poisoned_worker_ends_though_other_clients_own_something_in_it() {
    let workers = Workers::new(&program("rig::worker_process", "poisoned"), None).unwrap();
    let first = Guest::open(&workers);
    let (one, other) = (first.beside(1), first.beside(2));
    one.page();
    other.space();
    let poisoned = first.pid();
    one.session.reset_client(one.client);
    assert!(other.owns(), "it has not reset");
    assert_eq!(other.session.status_bits(), status::LOST);
    // A zombie has no arguments.
    let path = format!("/proc/{}/cmdline", poisoned.as_raw_nonzero());
    let lives = || std::fs::read(&path).is_ok_and(|line| !line.is_empty());
    eventually("its end", || !lives());
    other.session.reset_client(other.client);
    assert_eq!(first.session.status_bits(), status::READY);
    assert_ne!(first.pid(), poisoned);
}
