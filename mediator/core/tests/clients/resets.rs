//! A client is reset, and the others go on.

use causeway_mediator::GuestSession;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use causeway_protocol::message::*;
use causeway_protocol::registers::status;
use zerocopy::IntoBytes;

use crate::rig::*;
use crate::{bad_handle, estate, refused, with_kernels};

#[test]
fn a_reset_frees_all_of_its_client_and_nothing_of_others() {
    let rig = with_kernels();
    let (one, other) = (rig.guest.beside(1), rig.guest.beside(63));
    let keeps = estate(&other);
    let before = rig.backend.live();
    let (placements, doorbells) = (one.host.placements().len(), one.host.doorbells());
    for round in 0..20 {
        assert!(!one.owns());
        let mut loses = estate(&one);
        assert!(one.owns() && other.owns());
        // Also while a kernel runs that would never end, and a fence is waited for that nobody
        // releases.
        let hang = launch(loses.kernel, &[]);
        let stuck = fence(
            causeway_protocol::packet::Opcode::FenceAcquire,
            loses.va,
            99,
        );
        match round % 3 {
            0 => loses.buffer.submit(&[&hang]),
            1 => loses.buffer.submit(&[stuck.as_bytes()]),
            _ => {}
        }
        one.reset();
        assert_eq!(rig.backend.live(), before, "round {round}");
        assert_eq!(one.host.placements().len(), placements);
        assert_eq!(one.host.doorbells(), doorbells);
        assert_eq!((one.owns(), other.owns()), (false, true));
        assert_eq!(one.try_space(), Err((Status::NoHello, 0)));
        refused(other.import(&loses.token, READ), Status::BadToken);
        one.hello();
        bad_handle(one.by_handle(Opcode::Free, loses.memory), loses.memory);
    }
    let mut buffer = keeps.buffer;
    buffer.submit(&[release(keeps.va, 5).as_bytes()]);
    let view = other.host.map(keeps.offset).unwrap();
    eventually("the other's work", || {
        view.load_u64(0, Ordering::Acquire) == Ok(5)
    });
    assert_eq!(other.session.status_bits(), status::READY);
    other.reset();
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(rig.guest.session.owners(), 0);
}

#[test]
fn a_client_is_reset_again_and_again_beside_one_that_computes() {
    let rig = with_kernels();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guest = rig.guest.beside(1);
            let space = guest.space();
            let module = guest.load_module(space, "kernel add", 0x9000).unwrap();
            let add = guest.kernel(module, "add").unwrap().handle;
            let (va, view) = guest.buffer(space, PAGE);
            let mut buffer = guest.command_buffer(space);
            let mut value = 0u64;
            while !stop.load(Ordering::Relaxed) || value < 100 {
                value += 1;
                let parameters = [va.to_le_bytes(), value.to_le_bytes()].concat();
                let fence = release(va + 8, value);
                buffer.submit(&[&launch(add, &parameters), fence.as_bytes()]);
                eventually("the work", || {
                    view.load_u64(8, Ordering::Acquire) == Ok(value)
                });
                assert_eq!(view.load_u64(0, Ordering::Relaxed), Ok(value));
                assert!(guest.owns());
            }
        });
        let guest = rig.guest.beside(2);
        for _ in 0..150 {
            guest.hello();
            let mut loses = estate(&guest);
            loses.buffer.submit(&[&launch(loses.kernel, &[])]);
            guest.reset();
            assert!(!guest.owns());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(rig.guest.session.status_bits(), status::READY);
}

#[test]
fn operations_that_race_with_a_reset_leave_nothing_behind() {
    let rig = with_kernels();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (rig, stop) = (&rig, &stop);
            scope.spawn(move || {
                let guest = rig.guest.beside(7);
                while !stop.load(Ordering::Relaxed) {
                    guest.hello();
                    let Ok(space) = guest.try_space() else {
                        continue;
                    };
                    let address = 0x8000 + worker * 0x1000;
                    let _ = guest.load_module(space, "kernel add", address);
                    let Ok(memory) = guest.allocate(MemoryKind::Host, RING_BYTES) else {
                        continue;
                    };
                    let _ = guest.map_gpu(space, memory.handle, PAGE, READ_WRITE);
                    let request = CreateCommandBuffer {
                        space,
                        allocation: memory.handle,
                        offset: 0,
                        length: RING_BYTES,
                    };
                    let _ =
                        guest.ask::<_, CommandBufferReply>(Opcode::CreateCommandBuffer, &request);
                }
            });
        }
        for _ in 0..30 {
            rig.guest.session.reset_client(rig.guest.beside(7).client);
            std::thread::sleep(Duration::from_micros(300));
        }
        stop.store(true, Ordering::Relaxed);
    });
    rig.guest.session.reset_client(rig.guest.beside(7).client);
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(rig.guest.session.owners(), 0);
    assert!(rig.guest.host.doorbells().is_empty());
}

#[test]
fn all_command_buffers_of_a_client_have_time_to_end_their_work_at_its_reset() {
    let rig = Rig::new();
    rig.backend.set_grace(Duration::from_secs(50));
    let (begins, begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    rig.backend.define("nap", 0, move |launch| {
        begins.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        ends.send(launch.stopped()).unwrap();
        Ok(())
    });
    let guest = rig.guest.beside(1);
    let space = guest.space();
    let module = guest.load_module(space, "kernel nap", 0x8000).unwrap();
    let nap = guest.kernel(module, "nap").unwrap().handle;
    // The first one has nothing to do, and ends at once.
    let _idle = guest.command_buffer(space);
    let mut buffer = guest.command_buffer(space);
    buffer.submit(&[&launch(nap, &[])]);
    begun.recv().unwrap();
    guest.reset();
    assert_eq!(ended.recv(), Ok(false), "it was stopped");
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn a_wait_ends_when_its_client_is_reset() {
    let rig = Rig::new();
    let guest = rig.guest.beside(3);
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 1, Duration::from_secs(50)));
        eventually("the wait", || {
            guest
                .session
                .report()
                .messages_by_name()
                .iter()
                .any(|m| m.0 == "wait")
        });
        guest.reset();
        refused(waiter.join().unwrap(), Status::DeviceLost);
    });
}

#[test]
fn a_lost_session_begins_anew_when_the_last_has_given_up() {
    let rig = Rig::new();
    rig.backend.define("fault", 0, |launch| launch.store(8, 1));
    let (one, other) = (rig.guest.beside(1), rig.guest.beside(2));
    let keeps = other.space();
    let space = one.space();
    let module = one.load_module(space, "kernel fault", 0x8000).unwrap();
    let fault = one.kernel(module, "fault").unwrap().handle;
    let mut buffer = one.command_buffer(space);
    buffer.submit(&[&launch(fault, &[])]);
    eventually("the loss", || one.session.status_bits() == status::LOST);
    bad_lost(&other);
    one.reset();
    assert_eq!(
        one.session.status_bits(),
        status::LOST,
        "another has not given up"
    );
    assert_eq!(one.session.owners(), other.client.bit());
    other.reset();
    assert_eq!(one.session.status_bits(), status::READY);
    assert_eq!(rig.backend.live(), NOTHING);
    other.hello();
    bad_handle(other.by_handle(Opcode::DestroySpace, keeps), keeps);
    assert!(other.try_space().is_ok());
    // One that owns nothing can do the same.
    one.session.lose(causeway_mediator::backend::Fault::new(
        Status::BackEnd,
        "the test wants it",
    ));
    other.reset();
    assert_eq!(one.session.status_bits(), status::READY);
}

#[track_caller]
fn bad_lost(guest: &Guest) {
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
}

#[test]
fn a_reset_that_poisons_the_device_loses_it_for_all_other_clients_once() {
    let rig = Rig::new();
    let (one, other) = (rig.guest.beside(1), rig.guest.beside(2));
    let begin = |guest: &Guest| {
        guest.hello();
        guest.space();
    };
    begin(&one);
    begin(&other);
    one.reset();
    assert_eq!(one.session.status_bits(), status::READY, "nothing is wrong");
    begin(&one);
    rig.backend.poison();
    one.reset();
    bad_lost(&other);
    assert_eq!(other.fault().0, Some(Status::DeviceLost));
    other.reset();
    assert_eq!(one.session.status_bits(), status::READY);
    // They have all heard of it.
    begin(&one);
    begin(&other);
    one.reset();
    assert_eq!(one.session.status_bits(), status::READY);
}
