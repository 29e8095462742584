//! Command buffers, spaces and memory that end under work.

use causeway_mediator::GuestSession;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_mediator::Quota;
use causeway_protocol::message::*;
use causeway_protocol::packet;
use causeway_protocol::registers::status;
use zerocopy::IntoBytes;

use crate::rig::*;
use crate::{LONG, define_endless, launch_endless};

#[test]
fn a_kernel_that_does_not_end_holds_up_neither_control_nor_the_end() {
    let rig = Rig::new();
    let running = define_endless(&rig);
    let guest = &rig.guest;
    let space = guest.space();
    let queue = launch_endless(&rig, space);
    eventually("the kernel", || running.load(Ordering::Acquire));
    guest.buffer(space, PAGE);
    let begun = Instant::now();
    assert_eq!(
        guest.by_handle(Opcode::DestroyCommandBuffer, queue.handle),
        Err((Status::Busy, 0))
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert_eq!(guest.session.status_bits(), status::READY);
    assert_eq!(rig.backend.live().queues, 0);
    assert!(guest.host.doorbells().is_empty());

    running.store(false, Ordering::Release);
    let space = guest.space();
    let _queue = launch_endless(&rig, space);
    eventually("the kernel", || running.load(Ordering::Acquire));
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn a_session_that_is_dropped_ends_what_it_has() {
    let rig = Rig::new();
    let running = define_endless(&rig);
    let space = rig.guest.space();
    let queue = launch_endless(&rig, space);
    eventually("the kernel", || running.load(Ordering::Acquire));
    drop((queue, rig.guest));
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn the_end_of_a_space_is_no_fault_of_the_kernel_that_it_stops() {
    let rig = Rig::new();
    let running = define_endless(&rig);
    for _ in 0..200 {
        running.store(false, Ordering::Release);
        let space = rig.guest.space();
        let queue = launch_endless(&rig, space);
        eventually("the kernel", || running.load(Ordering::Acquire));
        rig.guest.by_handle(Opcode::DestroySpace, space).unwrap();
        assert_eq!(queue.producer.fault(), 0);
        rig.guest.free(queue.memory).unwrap();
    }
    assert_eq!(rig.guest.session.status_bits(), status::READY);
    assert_eq!(rig.guest.session.report().statistics.faults, 0);
}

#[test]
fn a_fault_in_the_last_packet_of_a_command_buffer_that_is_destroyed_counts() {
    let rig = Rig::new();
    let (running, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (flag, gate) = (Arc::clone(&running), Arc::clone(&go));
    rig.backend.define("endless", 0, move |launch| {
        flag.store(true, Ordering::Release);
        while !gate.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        launch.store(0, 0)
    });
    let queue = launch_endless(&rig, rig.guest.space());
    eventually("the kernel", || running.load(Ordering::Acquire));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            go.store(true, Ordering::Release);
        });
        // Destroyed, or found lost: the answer depends on who is first.
        let _ = rig
            .guest
            .by_handle(Opcode::DestroyCommandBuffer, queue.handle);
    });
    eventually("the loss", || {
        rig.guest.session.status_bits() == status::LOST
    });
    assert_eq!(rig.guest.fault().0, Some(Status::MemoryFault));
}

/// The back end may have to wait for the GPU before it can say what a fence in its memory holds.
#[test]
fn a_look_at_a_fence_that_takes_long_holds_up_no_one_and_ends_with_its_command_buffer() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    let held = |wanted| eventually("a look", || rig.backend.fetches_held() == wanted);
    let acquiring = || {
        let mut queue = guest.command_buffer(space);
        rig.backend.hold_fetches(true);
        let acquire = fence(packet::Opcode::FenceAcquire, va, 1);
        queue.submit(&[acquire.as_bytes()]);
        held(1);
        // After this time, the next look is one between sleeps.
        std::thread::sleep(Duration::from_millis(1));
        rig.backend.hold_fetches(false);
        held(0);
        rig.backend.hold_fetches(true);
        held(1);
        queue
    };
    let waiting = acquiring();
    let mut other = guest.command_buffer(space);
    other.submit(&[release(va + 8, 1).as_bytes()]);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va + 8, 1, LONG));
        let begun = Instant::now();
        while !waiter.is_finished() && begun.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waited = waiter.is_finished();
        rig.backend.hold_fetches(waited);
        assert!(waited);
    });
    let destroyed = guest.by_handle(Opcode::DestroyCommandBuffer, waiting.handle);
    rig.backend.hold_fetches(false);
    assert_eq!(destroyed, Ok(()));
    assert_eq!(waiting.producer.fault(), 0);
    let reset = acquiring();
    guest.session.reset();
    assert_eq!(reset.producer.fault(), 0);
    assert_eq!(guest.session.report().statistics.faults, 0);
}

#[test]
fn memory_freed_under_a_kernel_stays_charged_until_the_kernel_ends() {
    let rig = Rig::new();
    let (go, at) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (go_kernel, at_kernel) = (Arc::clone(&go), Arc::clone(&at));
    // Like a back end that takes a snapshot of the mappings: the ring's own memory is what stays in
    // use.
    rig.backend.define("hold", 0, move |_| {
        at_kernel.store(1, Ordering::Release);
        while !go_kernel.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let guest = &rig.guest;
    let space = guest.space();
    let module = guest.load_module(space, "kernel hold", 0).unwrap();
    let kernel = guest.kernel(module, "hold").unwrap().handle;
    let mut queue = guest.command_buffer(space);
    queue.submit(&[&launch(kernel, &[])]);
    eventually("the kernel", || at.load(Ordering::Acquire) == 1);
    guest.free(queue.memory).unwrap();
    let used = RING_BYTES.next_multiple_of(PAGE);
    assert_eq!(guest.attributes().memory_used_bytes, used);
    go.store(true, Ordering::Release);
    guest
        .by_handle(Opcode::DestroyCommandBuffer, queue.handle)
        .unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, 0);
}

/// Memory of a module's variables counts, and unloading the module under a running kernel makes no
/// room.
#[test]
fn variables_of_a_module_count_until_its_last_launch_is_over() {
    let quota = Quota {
        memory_bytes: 1 << 20,
        ..Quota::default()
    };
    let rig = Rig::with_quota(quota);
    let running = define_endless(&rig);
    let guest = &rig.guest;
    let space = guest.space();
    let mut queue = guest.command_buffer(space);
    let ring = guest.attributes().memory_used_bytes;
    let text = "kernel endless\nvariables 600000";
    let module = guest.load_module(space, text, 0).unwrap();
    let too_much = guest.load_module(space, text, 0).unwrap_err();
    assert_eq!(too_much.0, Status::QuotaBytes);
    assert_eq!(rig.backend.live().modules, 1);
    let kernel = guest.kernel(module, "endless").unwrap().handle;
    queue.submit(&[&launch(kernel, &[])]);
    eventually("the kernel", || running.load(Ordering::Acquire));
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, ring + 600_000);
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, ring);
}
