//! Sessions that have the device in turn with others.

mod rig;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::{GuestSession, LeaseOrder, LeaseReport, Lender};
use causeway_protocol::packet;
use parking_lot::Mutex;
use rig::*;
use zerocopy::IntoBytes;

const LONG: Duration = Duration::from_secs(20);

/// Keeps what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<LeaseReport>>);

impl Lender for Told {
    fn tell(&self, report: LeaseReport) {
        self.0.lock().push(report);
    }
}

impl Told {
    #[track_caller]
    fn hears(&self, reports: &[LeaseReport]) {
        eventually("a report", || self.0.lock().len() >= reports.len());
        assert_eq!(std::mem::take(&mut *self.0.lock()), reports);
    }
}

/// A guest whose session needs leases, with a space and memory in it.
struct Leased {
    rig: Rig,
    told: Arc<Told>,
    space: u32,
    va: u64,
    view: causeway_memory::Mapping,
}

impl Leased {
    fn new(runs_behind: bool) -> Self {
        let rig = Rig::new();
        rig.backend.run_behind(runs_behind);
        let told = Arc::<Told>::default();
        rig.guest.session.set_lender(Arc::clone(&told) as _);
        let space = rig.guest.space();
        let (va, view) = rig.guest.buffer(space, PAGE);
        rig.guest.session.obey_lender(LeaseOrder::Ask);
        told.hears(&[LeaseReport::Returned(0)]);
        Self {
            rig,
            told,
            space,
            va,
            view,
        }
    }

    fn fill(&self, pattern: u32) -> packet::Fill {
        packet::Fill {
            header: header(packet::Opcode::Fill, 1),
            destination: self.va,
            length: 64,
            pattern,
            width: 4,
            ..packet::Fill::default()
        }
    }

    fn first_word(&self) -> u32 {
        self.view.load_u32(0, Ordering::Acquire).unwrap()
    }

    fn grant(&self) {
        self.rig.guest.session.obey_lender(LeaseOrder::Grant(5));
    }

    /// Asks for the lease back at once.
    fn ask_back(&self) {
        let session = &self.rig.guest.session;
        session.obey_lender(LeaseOrder::Return(Duration::ZERO));
        assert_eq!(session.look_at_lease(), None);
    }
}

#[test]
fn work_waits_for_a_lease_that_is_returned_when_it_is_done() {
    let leased = Leased::new(true);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    queue.submit(&[
        leased.fill(7).as_bytes(),
        release(leased.va + 64, 1).as_bytes(),
    ]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.rig.backend.catch_up();
    assert_eq!(leased.first_word(), 0);
    leased.grant();
    eventually("the work to be submitted", || {
        queue.producer.consumed() == 2
    });
    leased.ask_back();
    // It has work under way.
    assert!(leased.told.0.lock().is_empty());
    leased.rig.backend.catch_up();
    leased.told.hears(&[LeaseReport::Returned(5)]);
    assert_eq!(leased.first_word(), 7);
    assert_eq!(guest.session.report().statistics.turn_waits, 1);
    // A fence takes no time of the device, and needs no room.
    assert_eq!(leased.rig.backend.looks_for_room(), 1);
}

#[test]
fn a_consumer_that_executes_work_itself_returns_its_lease_after_each_piece() {
    let leased = Leased::new(false);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    for value in 1..=3 {
        queue.submit(&[leased.fill(value).as_bytes()]);
        leased.told.hears(&[LeaseReport::Wanted]);
        assert_eq!(leased.first_word(), value - 1);
        leased.grant();
        eventually("the work to be done", || leased.first_word() == value);
        std::thread::sleep(Duration::from_millis(1));
        leased.ask_back();
        leased.told.hears(&[LeaseReport::Returned(5)]);
    }
}

#[test]
fn the_next_session_may_begin_when_the_last_work_of_this_one_has() {
    let leased = Leased::new(true);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    queue.submit(&[leased.fill(1).as_bytes(), leased.fill(2).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    eventually("the work to be submitted", || {
        queue.producer.consumed() == 2
    });
    // It looks how far the device is, because others may wait.
    assert_eq!(leased.rig.backend.looks_for_room(), 2);
    leased.ask_back();
    // More work waits for the next lease, and a fence does not.
    queue.submit(&[
        release(leased.va + 64, 1).as_bytes(),
        leased.fill(3).as_bytes(),
    ]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.rig.backend.set_near_end(true);
    leased.told.hears(&[LeaseReport::Stopped(5)]);
    leased.rig.backend.catch_up();
    leased.told.hears(&[LeaseReport::Returned(5)]);
    assert_eq!(leased.first_word(), 2);
    leased.grant();
    eventually("the rest to be submitted", || {
        queue.producer.consumed() == 4
    });
    leased.rig.backend.catch_up();
    assert_eq!(leased.first_word(), 3);
}

#[test]
fn the_next_session_may_begin_though_the_ring_of_this_one_is_never_empty() {
    let leased = Leased::new(true);
    let backend = &leased.rig.backend;
    let mut queue = leased.rig.guest.command_buffer(leased.space);
    // While its queue has no room, the consumer does not look how far the device is.
    backend.set_overfull(true);
    let mut long = [0; 200 * packet::UNIT_BYTES];
    long[..8].copy_from_slice(header(packet::Opcode::Nop, 200).as_bytes());
    let acquire = fence(packet::Opcode::FenceAcquire, leased.va + 64, 1);
    queue.submit(&[leased.fill(1).as_bytes(), &long, acquire.as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    eventually("looks for room", || backend.looks_for_room() > 2);
    leased.ask_back();
    backend.set_near_end(true);
    backend.set_overfull(false);
    // It looks before the acquire, which waits until the device has done the work.
    leased.told.hears(&[LeaseReport::Stopped(5)]);
    backend.catch_up();
    leased.told.hears(&[LeaseReport::Returned(5)]);
}

#[test]
fn of_work_that_is_done_only_the_end_is_told() {
    let leased = Leased::new(true);
    let backend = &leased.rig.backend;
    let mut queue = leased.rig.guest.command_buffer(leased.space);
    backend.set_overfull(true);
    backend.set_near_end(true);
    queue.submit(&[leased.fill(1).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    eventually("looks for room", || backend.looks_for_room() > 2);
    leased.ask_back();
    backend.catch_up();
    // Now the consumer looks at its queue.
    backend.set_overfull(false);
    leased.told.hears(&[LeaseReport::Returned(5)]);
}

#[test]
fn a_lease_is_returned_soon_after_the_last_work_though_nothing_more_comes() {
    let leased = Leased::new(true);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    queue.submit(&[leased.fill(1).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    eventually("the work to be submitted", || {
        queue.producer.consumed() == 1
    });
    // Long before the time is over.
    let order = LeaseOrder::Return(3 * LONG);
    guest.session.obey_lender(order);
    // The consumer sleeps.
    std::thread::sleep(Duration::from_millis(5));
    leased.rig.backend.catch_up();
    leased.told.hears(&[LeaseReport::Returned(5)]);
}

#[test]
fn a_session_that_others_hurry_can_give_the_device_back_at_once() {
    let leased = Leased::new(true);
    let backend = &leased.rig.backend;
    let mut queue = leased.rig.guest.command_buffer(leased.space);
    let mut submit = |value| {
        queue.submit(&[leased.fill(value).as_bytes()]);
    };
    let has_submitted = |count| {
        let consumed = || leased.first_word() == count;
        eventually("the work to be done", || {
            backend.catch_up();
            consumed()
        });
    };
    submit(1);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    has_submitted(1);
    leased.ask_back();
    leased.told.hears(&[LeaseReport::Returned(5)]);

    submit(2);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    has_submitted(2);
    // The lease before was wanted back at once, and this one may be, too.
    backend.set_full(true);
    submit(3);
    let looks = backend.looks_for_room();
    eventually("looks for room", || backend.looks_for_room() > looks + 2);
    backend.catch_up();
    assert_eq!(leased.first_word(), 2, "the device has enough");
    leased.ask_back();
    leased
        .told
        .hears(&[LeaseReport::Wanted, LeaseReport::Returned(5)]);
    backend.set_full(false);
    leased.grant();
    has_submitted(3);
}

#[test]
fn a_session_with_a_lease_is_no_further_ahead_than_the_device_needs() {
    let leased = Leased::new(true);
    let backend = &leased.rig.backend;
    let mut queue = leased.rig.guest.command_buffer(leased.space);
    backend.set_overfull(true);
    queue.submit(&[leased.fill(1).as_bytes(), leased.fill(2).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    eventually("looks for room", || backend.looks_for_room() > 2);
    backend.catch_up();
    assert_eq!(leased.first_word(), 1, "the device has enough");
    backend.set_overfull(false);
    eventually("the rest to be done", || {
        backend.catch_up();
        leased.first_word() == 2
    });
    // A reset waits for no room.
    backend.set_overfull(true);
    let looks = backend.looks_for_room();
    queue.submit(&[leased.fill(3).as_bytes()]);
    eventually("looks for room", || backend.looks_for_room() > looks + 2);
    leased.rig.guest.session.reset();
    assert_eq!(backend.live(), NOTHING);
}

#[test]
fn who_needs_no_lease_may_be_far_ahead_of_the_device() {
    let rig = Rig::new();
    rig.backend.run_behind(true);
    let space = rig.guest.space();
    let (va, _view) = rig.guest.buffer(space, PAGE);
    let mut queue = rig.guest.command_buffer(space);
    let fill = packet::Fill {
        header: header(packet::Opcode::Fill, 1),
        destination: va + 64,
        length: 64,
        width: 4,
        ..packet::Fill::default()
    };
    queue.submit(&[fill.as_bytes(), release(va, 1).as_bytes()]);
    eventually("the work to be submitted", || {
        queue.producer.consumed() == 2
    });
    assert_eq!(rig.backend.looks_for_room(), 0);
    rig.backend.catch_up();
}

#[test]
fn some_fences_need_no_lease_and_a_flood_of_them_does() {
    let leased = Leased::new(false);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    for value in 1..=16 {
        queue.submit(&[release(leased.va, value).as_bytes()]);
        guest.wait(leased.space, leased.va, value, LONG).unwrap();
    }
    assert!(leased.told.0.lock().is_empty());
    queue.submit(&[release(leased.va, 17).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    assert_eq!(leased.first_word(), 16);
    leased.grant();
    guest.wait(leased.space, leased.va, 17, LONG).unwrap();
}

#[test]
fn a_command_buffer_that_is_destroyed_keeps_the_lease_until_its_work_is_done() {
    let leased = Leased::new(true);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    queue.submit(&[leased.fill(7).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    leased.grant();
    eventually("the work to be submitted", || {
        queue.producer.consumed() == 1
    });
    std::thread::scope(|scope| {
        let handle = queue.handle;
        scope.spawn(move || {
            guest.by_handle(
                causeway_protocol::message::Opcode::DestroyCommandBuffer,
                handle,
            )
        });
        std::thread::sleep(Duration::from_millis(5));
        leased.ask_back();
        assert!(leased.told.0.lock().is_empty());
        leased.rig.backend.catch_up();
        leased.told.hears(&[LeaseReport::Returned(5)]);
    });
}

#[test]
fn a_reset_ends_the_wait_for_a_lease() {
    let leased = Leased::new(true);
    let guest = &leased.rig.guest;
    let mut queue = guest.command_buffer(leased.space);
    queue.submit(&[leased.fill(7).as_bytes()]);
    leased.told.hears(&[LeaseReport::Wanted]);
    guest.session.reset();
    // It comes for nothing, and goes back when it is asked for.
    leased.grant();
    std::thread::sleep(Duration::from_millis(1));
    leased.ask_back();
    leased.told.hears(&[LeaseReport::Returned(5)]);
}
