//! What is wrong with packets and work, and whom it ends.

use causeway_mediator::GuestSession;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_protocol::message::*;
use causeway_protocol::packet;
use causeway_protocol::registers::status;
use causeway_protocol::ring::FAULT_POSITION;
use zerocopy::IntoBytes;

use crate::rig::*;
use crate::{LONG, store, with_store};

fn fault_position(queue: &Queue) -> u64 {
    let memory = queue.producer.memory();
    memory
        .load_u64(FAULT_POSITION as u64, Ordering::Acquire)
        .unwrap()
}

/// Submits one packet and gives the fault; the session, and another command buffer, must live on.
fn dies_of(packet: impl Fn(u32, u64) -> Vec<u8>) -> Option<Status> {
    let (rig, space, kernel) = with_store();
    let (va, _view) = rig.guest.buffer(space, PAGE);
    let mut bad = rig.guest.command_buffer(space);
    bad.submit(&[release(va, 1).as_bytes(), &packet(kernel, va)]);
    let fault = bad.wait_for_fault();
    assert_eq!(fault_position(&bad), 1);
    let mut good = rig.guest.command_buffer(space);
    good.submit(&[release(va + 8, 1).as_bytes()]);
    rig.guest.wait(space, va + 8, 1, LONG).unwrap();
    assert_eq!(rig.guest.session.status_bits(), status::READY);
    rig.guest
        .by_handle(Opcode::DestroyCommandBuffer, bad.handle)
        .unwrap();
    fault
}

#[test]
fn what_is_wrong_with_a_packet_kills_its_command_buffer_alone() {
    let unit = |opcode: u16, units: u32| {
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&opcode.to_le_bytes());
        bytes[4..8].copy_from_slice(&units.to_le_bytes());
        bytes
    };
    let changed = |at: usize, value: u32| {
        move |kernel, va| {
            let mut packet = store(kernel, va, 1);
            packet[at..at + 4].copy_from_slice(&value.to_le_bytes());
            packet
        }
    };
    assert_eq!(dies_of(|_, _| unit(99, 1)), Some(Status::BadPacket));
    assert_eq!(dies_of(|_, _| unit(1, 0)), Some(Status::BadPacket));
    assert_eq!(
        dies_of(|_, _| unit(1, 2)),
        Some(Status::BadPacket),
        "past the producer"
    );
    assert_eq!(
        dies_of(|_, va| release(va + 4, 1).as_bytes().to_vec()),
        Some(Status::BadAlignment)
    );
    assert_eq!(dies_of(changed(8, 0x77)), Some(Status::BadHandle));
    assert_eq!(
        dies_of(changed(12, 48 << 10)),
        Some(Status::BadLaunch),
        "shared memory"
    );
    assert_eq!(
        dies_of(changed(12, 16 << 10)),
        Some(Status::QuotaBytes),
        "a launch that takes a gibibyte"
    );
    assert_eq!(
        dies_of(changed(16, 0)),
        Some(Status::BadLaunch),
        "empty grid"
    );
    assert_eq!(
        dies_of(changed(20, 65536)),
        Some(Status::BadLaunch),
        "grid in y"
    );
    assert_eq!(
        dies_of(changed(28, 513)),
        Some(Status::BadLaunch),
        "the kernel's block limit"
    );
    assert_eq!(dies_of(changed(28, u32::MAX)), Some(Status::BadLaunch));
    assert_eq!(
        dies_of(|f, _| launch(f, &[0; 24])),
        Some(Status::BadParameters)
    );
    assert_eq!(dies_of(changed(44, 2)), Some(Status::BadPacket), "no flag");
    assert_eq!(dies_of(changed(60, 1)), Some(Status::BadPacket), "reserved");
}

#[test]
fn impossible_producer_positions_are_faults() {
    for position in [257, u64::MAX, 1 << 40] {
        let rig = Rig::new();
        let space = rig.guest.space();
        let queue = rig.guest.command_buffer(space);
        queue
            .producer
            .memory()
            .store_u64(0, position, Ordering::Release)
            .unwrap();
        rig.guest.host.ring(queue.doorbell);
        assert_eq!(queue.wait_for_fault(), Some(Status::BadPosition));
        assert_eq!(rig.guest.session.status_bits(), status::READY);
    }
}

#[test]
fn a_fault_in_work_ends_the_session_and_no_other() {
    let (rig, space, kernel) = with_store();
    let guest = &rig.guest;
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    guest
        .session
        .observe_status(move |bits| teller.lock().unwrap().push(bits));
    let neighbour = rig.another();
    let neighbour_space = neighbour.space();
    let (neighbour_va, _view) = neighbour.buffer(neighbour_space, PAGE);
    let mut neighbours = neighbour.command_buffer(neighbour_space);
    let (va, _view) = guest.buffer(space, PAGE);
    let bystander = guest.command_buffer(space);
    let mut queue = guest.command_buffer(space);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 1, LONG));
        std::thread::sleep(Duration::from_millis(2));
        queue.submit(&[&store(kernel, 0xdead_0000, 1)]);
        assert_eq!(waiter.join().unwrap(), Err((Status::DeviceLost, 0)));
    });
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    assert_eq!(bystander.wait_for_fault(), Some(Status::DeviceLost));
    assert_eq!(guest.session.status_bits(), status::LOST);
    let (fault, text) = guest.fault();
    assert_eq!(fault, Some(Status::MemoryFault));
    assert!(text.contains("0xdead0000"), "{text}");
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    assert_eq!(guest.free(1), Err((Status::DeviceLost, 0)));
    guest.hello();
    assert!(guest.session.report().fault.is_some());

    neighbours.submit(&[release(neighbour_va, 1).as_bytes()]);
    neighbour
        .wait(neighbour_space, neighbour_va, 1, LONG)
        .unwrap();

    guest.session.reset();
    assert_eq!(*told.lock().unwrap(), [status::LOST, status::READY]);
    assert_eq!(guest.session.status_bits(), status::READY);
    guest.hello();
    assert_eq!(guest.fault(), (Some(Status::Ok), String::new()));
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    guest
        .command_buffer(space)
        .submit(&[release(va, 1).as_bytes()]);
    guest.wait(space, va, 1, LONG).unwrap();
}

#[test]
fn a_fence_acquire_that_cannot_read_its_fence_ends_the_session() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let mut queue = guest.command_buffer(guest.space());
    let acquire = fence(packet::Opcode::FenceAcquire, 0xdead_0000, 1);
    queue.submit(&[acquire.as_bytes()]);
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    eventually("the loss", || guest.session.status_bits() == status::LOST);
    let (_, text) = guest.fault();
    assert!(text.contains("0xdead0000"), "{text}");
}

#[test]
fn a_back_end_that_panics_ends_the_session() {
    let rig = Rig::new();
    rig.backend
        .define("panic", 0, |_| panic!("wanted by the test"));
    let space = rig.guest.space();
    let module = rig.guest.load_module(space, "kernel panic", 0).unwrap();
    let kernel = rig.guest.kernel(module, "panic").unwrap().handle;
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[&launch(kernel, &[])]);
    assert_eq!(queue.wait_for_fault(), Some(Status::BackEnd));
    eventually("the loss", || {
        rig.guest.session.status_bits() == status::LOST
    });
}
