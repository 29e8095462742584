//! What a session has and may have, how it waits, and how it ends.

use std::time::Duration;

use causeway_mediator::{Compute, GuestSession, InForce, LimitChange, LimitError, Quota};
use causeway_mediator_testing::ask;
use causeway_protocol::message::*;
use causeway_protocol::registers::status;

use crate::rig::*;

#[test]
fn stale_and_foreign_handles_are_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let memory = guest.memory(MemoryKind::Device, 1);
    let space = guest.space();
    guest.free(memory).unwrap();
    assert_eq!(guest.free(memory), Err((Status::BadHandle, memory)));
    let again = guest.memory(MemoryKind::Device, 1);
    assert_ne!(memory, again);
    assert_eq!(guest.free(memory), Err((Status::BadHandle, memory)));
    assert_eq!(
        guest.free(space),
        Err((Status::BadHandle, space)),
        "a space is not memory"
    );
    assert_eq!(
        guest.by_handle(Opcode::UnloadModule, space),
        Err((Status::BadHandle, space))
    );
    assert_eq!(
        rig.another().free(again),
        Err((Status::BadHandle, again)),
        "handles mean nothing elsewhere"
    );
}

#[test]
fn every_quota_is_kept_and_comes_back() {
    let rig = Rig::with_quota(Quota {
        memory_bytes: 4 << 20,
        allocations: 3,
        command_buffers: 1,
        objects: 3,
        ..Quota::default()
    });
    let guest = &rig.guest;
    assert_eq!(
        guest.allocate(MemoryKind::Host, 0).unwrap_err(),
        (Status::BadRange, 0)
    );
    assert_eq!(
        guest.allocate(MemoryKind::Host, 5 << 20).unwrap_err(),
        (Status::QuotaBytes, 4)
    );
    assert_eq!(
        guest.allocate(MemoryKind::Host, u64::MAX).unwrap_err().0,
        Status::QuotaBytes
    );
    let memory = guest.memory(MemoryKind::Host, 3 << 20);
    assert_eq!(guest.attributes().memory_used_bytes, 3 << 20);
    assert_eq!(
        guest.allocate(MemoryKind::Host, 2 << 20).unwrap_err(),
        (Status::QuotaBytes, 1)
    );
    let space = guest.space();
    guest.map_gpu(space, memory, PAGE, READ).unwrap();
    guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    assert_eq!(guest.try_space(), Err((Status::QuotaObjects, 3)));
    guest.free(memory).unwrap();
    let _first = guest.command_buffer(space);
    let second = guest.try_command_buffer(space).map(|queue| queue.handle);
    assert_eq!(second, Err((Status::QuotaCommandBuffers, 1)));
    guest.memory(MemoryKind::Host, 1);
    assert_eq!(
        guest.allocate(MemoryKind::Host, 1).unwrap_err(),
        (Status::QuotaAllocations, 3)
    );
}

#[test]
fn limits_change_while_a_session_works_and_take_nothing_away() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let change = |memory_mib: u64, command_buffers| {
        let change = LimitChange {
            memory_bytes: Some(memory_mib << 20),
            command_buffers: Some(command_buffers),
            ..LimitChange::default()
        };
        assert_eq!(guest.session.set_limits(&change), Ok(InForce::AtOnce));
    };
    let memory = guest.memory(MemoryKind::Host, 3 << 20);
    let space = guest.space();
    let queue = guest.command_buffer(space);
    change(2, 1);
    let attributes = guest.attributes();
    assert_eq!(attributes.memory_bytes, 2 << 20);
    assert_eq!(attributes.command_buffers_max, 1);
    assert!(
        attributes.memory_used_bytes >= 3 << 20,
        "it keeps what it has"
    );
    let refused = guest.allocate(MemoryKind::Host, PAGE).unwrap_err();
    assert_eq!(refused, (Status::QuotaBytes, 0));
    guest.map_gpu(space, memory, PAGE, READ).unwrap();
    change(4, 1);
    guest.memory(MemoryKind::Host, PAGE);
    let second = guest.try_command_buffer(space).map(|queue| queue.handle);
    assert_eq!(second, Err((Status::QuotaCommandBuffers, 1)));
    change(4, 2);
    let second = guest.command_buffer(space);
    assert_ne!(second.handle, queue.handle);
    let statistics = guest.session.activity().unwrap().statistics;
    assert_eq!(statistics.memory_limit_bytes, 4 << 20);
    assert_eq!(guest.session.limits().memory_bytes, 4 << 20);
    // Limits are the guest's, whatever it resets.
    guest.session.reset();
    assert_eq!(guest.session.limits().memory_bytes, 4 << 20);
}

#[test]
fn a_change_that_is_refused_in_part_changes_nothing() {
    let rig = Rig::new();
    let session = &rig.guest.session;
    let change = LimitChange {
        allocations: Some(1),
        weight: Some(Some(8)),
        ..LimitChange::default()
    };
    assert_eq!(session.set_limits(&change), Err(LimitError::NoWorker));
    assert_eq!(session.limits(), Quota::default());
    let beyond = LimitChange {
        allocations: Some(1),
        memory_bytes: Some((1 << 30) + 1),
        ..LimitChange::default()
    };
    let refused = session.set_limits(&beyond);
    assert!(matches!(refused, Err(LimitError::Memory { .. })));
    assert_eq!(session.limits(), Quota::default());
    rig.backend.share_time();
    session.set_limits(&change).unwrap();
    let compute = |weight, share_percent| Compute {
        weight,
        share_percent,
    };
    assert_eq!(session.limits().compute, compute(Some(8), None));
    let capped = LimitChange {
        share_percent: Some(Some(25)),
        ..LimitChange::default()
    };
    session.set_limits(&capped).unwrap();
    assert_eq!(session.limits().compute, compute(Some(8), Some(25)));
    let statistics = session.activity().unwrap().statistics;
    assert_eq!((statistics.weight, statistics.share_percent), (8, 25));
    let free = LimitChange {
        weight: Some(None),
        ..LimitChange::default()
    };
    session.set_limits(&free).unwrap();
    assert_eq!(session.limits().compute, compute(None, Some(25)));
    assert_eq!(session.limits().allocations, 1);
}

#[test]
fn reset_releases_everything_and_opens_a_fresh_session() {
    let rig = Rig::new();
    rig.backend.define("add", 0, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    guest.load_module(space, "kernel add", 0).unwrap();
    let queue = guest.command_buffer(space);
    let (_, view) = guest.buffer(space, PAGE);
    let shared = guest.memory(MemoryKind::Host, PAGE);
    let token = guest.export(shared, READ).unwrap();
    drop(view);
    guest.session.reset();
    assert_eq!(rig.backend.live(), NOTHING);
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
    assert_eq!(guest.session.status_bits(), status::READY);
    guest.hello();
    assert_eq!(guest.import(&token, READ).unwrap_err().0, Status::BadToken);
    assert_eq!(
        guest
            .by_handle(Opcode::DestroyCommandBuffer, queue.handle)
            .unwrap_err()
            .0,
        Status::BadHandle
    );
}

#[test]
fn close_is_final_and_can_be_repeated() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    guest.buffer(space, PAGE);
    guest.session.close();
    guest.session.close();
    assert_eq!(guest.session.status_bits(), 0);
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    let hello = ask::<_, HelloReply>(&guest.session, Opcode::Hello, &Hello::default());
    assert_eq!(hello.unwrap_err().0, Status::DeviceLost);
    guest.session.reset();
    assert_eq!(
        guest.session.status_bits(),
        0,
        "a reset does not bring it back"
    );
}

#[test]
fn wait_times_out_is_interrupted_and_sees_plain_stores() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, view) = guest.buffer(space, PAGE);
    let soon = Duration::from_millis(2);
    assert_eq!(guest.wait(space, va, 1, soon), Err((Status::TimedOut, 0)));
    assert_eq!(
        guest.wait(space, va + 4, 1, soon),
        Err((Status::BadAlignment, 8))
    );
    assert_eq!(
        guest.wait(space, 0x8_0000, 1, soon),
        Err((Status::BadRange, 0))
    );
    assert_eq!(guest.wait(space, va, 0, soon), Ok(()));
    let long = Duration::from_secs(50);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 5, long));
        std::thread::sleep(soon);
        view.store_u64(0, 6, std::sync::atomic::Ordering::Release)
            .unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        let waiter = scope.spawn(|| guest.wait(space, va, 7, long));
        std::thread::sleep(soon);
        guest.memory(MemoryKind::Host, 1); // A sleeping wait holds nobody up.
        guest.session.interrupt();
        assert_eq!(waiter.join().unwrap(), Err((Status::TimedOut, 0)));
    });
    assert_eq!(
        guest.wait(space, va, 7, long),
        Err((Status::TimedOut, 0)),
        "and stays so"
    );
    assert_eq!(guest.wait(space, va, 6, long), Ok(()));
}
