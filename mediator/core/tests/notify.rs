//! Interrupts for fences.

mod rig;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::{Client, GuestSession};
use causeway_protocol::message::*;
use causeway_protocol::registers::status;
use rig::*;
use zerocopy::IntoBytes;

/// Longer than the longest time between two looks.
const LOOKED: Duration = Duration::from_millis(40);

fn raised(guest: &Guest) {
    eventually("the interrupt", || guest.host.take_interrupt(guest.client));
}

#[track_caller]
fn quiet(guest: &Guest) {
    std::thread::sleep(LOOKED);
    assert!(!guest.host.take_interrupt(guest.client));
}

#[test]
fn a_fence_raises_its_clients_interrupt_once_whoever_stores_to_it() {
    let rig = Rig::new();
    let (guest, other) = (rig.guest.beside(5), rig.guest.beside(6));
    let space = guest.space();
    let (va, view) = guest.buffer(space, PAGE);
    let mut buffer = guest.command_buffer(space);
    assert_eq!(guest.notify(space, va, 0), Ok(false), "there already");
    quiet(&guest);
    assert_eq!(guest.notify(space, va, 1), Ok(true));
    quiet(&guest);
    buffer.submit(&[release(va, 1).as_bytes()]);
    raised(&guest);
    assert_eq!(guest.notify(space, va, 3), Ok(true));
    view.store_u64(0, 2, Ordering::Release).unwrap();
    quiet(&guest);
    view.store_u64(0, 4, Ordering::Release).unwrap();
    raised(&guest);
    view.store_u64(0, 5, Ordering::Release).unwrap();
    quiet(&guest);
    quiet(&other);
    assert_eq!(guest.session.report().statistics.interrupts, 2);
}

#[test]
fn of_several_values_the_smallest_counts_and_fences_are_bounded() {
    let rig = Rig::new();
    let (guest, other) = (rig.guest.beside(1), rig.guest.beside(2));
    let space = guest.space();
    let (va, view) = guest.buffer(space, PAGE);
    for value in [9, 3, 7] {
        assert_eq!(guest.notify(space, va, value), Ok(true));
    }
    for fence in 1..u64::from(NOTIFIES_MAX) {
        assert_eq!(guest.notify(space, va + 8 * fence, 1), Ok(true));
    }
    let full = Err((Status::QuotaObjects, NOTIFIES_MAX));
    assert_eq!(
        guest.notify(space, va + 8 * u64::from(NOTIFIES_MAX), 1),
        full
    );
    let theirs = other.space();
    let (their_va, _view) = other.buffer(theirs, PAGE);
    assert_eq!(other.notify(theirs, their_va, 1), full);
    view.store_u64(0, 3, Ordering::Release).unwrap();
    raised(&guest);
    assert_eq!(
        other.notify(theirs, their_va, 1),
        Ok(true),
        "there is room again"
    );
}

#[test]
fn what_is_no_fence_is_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    assert_eq!(
        guest.notify(space, va + 4, 1),
        Err((Status::BadAlignment, 8))
    );
    assert_eq!(
        guest.notify(space, va + PAGE, 1),
        Err((Status::BadRange, 0))
    );
    assert_eq!(guest.notify(space, 0, 1), Err((Status::BadRange, 0)));
    assert_eq!(guest.notify(99, va, 1), Err((Status::BadHandle, 99)));
    quiet(guest);
}

#[test]
fn the_end_of_a_fence_or_of_the_session_raises_what_waits_for_it() {
    let rig = Rig::new();
    let guest = rig.guest.beside(1);
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    guest.notify(space, va, 1).unwrap();
    guest.unmap(Opcode::UnmapGpu, space, va).unwrap();
    raised(&guest);
    let (va, _view) = guest.buffer(space, PAGE);
    guest.notify(space, va, 1).unwrap();
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert!(guest.host.take_interrupt(guest.client), "at once");
    assert_eq!(
        rig.backend.live().spaces,
        0,
        "nothing holds on to the space"
    );
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    guest.notify(space, va, 1).unwrap();
    guest.session.lose(causeway_mediator::backend::Fault::new(
        Status::BackEnd,
        "the test wants it",
    ));
    raised(&guest);
}

#[test]
fn a_reset_forgets_what_its_client_waits_for_and_nothing_of_others() {
    let rig = Rig::new();
    let (guest, other) = (rig.guest.beside(1), rig.guest.beside(2));
    let fence = |guest: &Guest| {
        let space = guest.space();
        let (va, view) = guest.buffer(space, PAGE);
        guest.notify(space, va, 1).unwrap();
        view
    };
    for _ in 0..50 {
        let view = fence(&guest);
        view.store_u64(0, 1, Ordering::Release).unwrap();
        guest.reset();
        // It may have been raised before. It is not afterwards.
        guest.host.take_interrupt(guest.client);
        guest.hello();
        assert!(!guest.host.take_interrupt(guest.client));
    }
    let kept = fence(&other);
    fence(&guest);
    guest.reset();
    quiet(&guest);
    kept.store_u64(0, 1, Ordering::Release).unwrap();
    raised(&other);
    quiet(&guest);
    // The reset of all forgets all.
    let kept = fence(&other);
    guest.session.reset();
    kept.store_u64(0, 1, Ordering::Release).unwrap();
    quiet(&other);
    assert_eq!(guest.session.status_bits(), status::READY);
}

#[test]
fn a_closed_session_watches_nothing() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    guest.notify(space, va, 1).unwrap();
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(guest.notify(space, va, 1), Err((Status::DeviceLost, 0)));
    quiet(guest);
    assert_eq!(guest.client, Client::FIRST);
    // Its thread has ended, and holds nothing any more.
    let host = Arc::downgrade(&guest.host);
    drop(rig);
    assert!(host.upgrade().is_none());
}
