//! Memory that goes while a queue is using it. The stand-in ends the process when it is given an
//! address that is not registered any more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use causeway_mediator::backend::{AllocateOptions, Backend, MemoryWork, Space, Work};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{GRANULE, Rig, is_child};

/// Uses whatever `address` holds until told to end. Gives how often it was mapped, and how often
/// not.
fn hammer(space: &dyn Space, address: &AtomicU64, end: &AtomicBool) -> (u64, u64) {
    let (mut mapped, mut gone) = (0, 0);
    let mut queue = space.create_queue(0).unwrap();
    while !end.load(Ordering::SeqCst) {
        let destination = address.load(Ordering::SeqCst);
        let fill = Work::Memory(MemoryWork::Fill {
            destination,
            bytes: 4096,
            pattern: 1,
            width: 4,
        });
        match queue.submit(fill) {
            Ok(()) => mapped += 1,
            Err(fault) => {
                assert_eq!(fault.status, Status::MemoryFault, "{fault}");
                assert!(fault.text.starts_with("a fill"), "not by us: {fault}");
                gone += 1;
                queue = space.create_queue(0).unwrap();
            }
        }
    }
    queue.finish().unwrap();
    (mapped, gone)
}

#[test]
fn host_memory_that_goes_under_a_queue_is_never_seen_by_the_driver() {
    if !is_child(
        "racing::host_memory_that_goes_under_a_queue_is_never_seen_by_the_driver",
        &[],
    ) {
        return;
    }
    let rig = Rig::new();
    let space = &*rig.space;
    let (address, end) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mapped, gone) = std::thread::scope(|scope| {
        let hammers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| hammer(space, &address, &end)))
            .collect();
        for round in 0..300 {
            let memory = rig
                .cuda
                .allocate(MemoryKind::Host, GRANULE, AllocateOptions::default())
                .unwrap();
            // What was exported is not kept, and so unregistered when it goes.
            drop(memory.export().unwrap());
            let access = Access::ReadWrite;
            let va = rig.space.map(None, &memory, 0, GRANULE, access).unwrap();
            address.store(va, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(round % 7 * 50));
            rig.space.unmap(va).unwrap();
            drop(memory);
        }
        end.store(true, Ordering::SeqCst);
        let counts = hammers.into_iter().map(|hammer| hammer.join().unwrap());
        counts.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    });
    eprintln!("{mapped} fills, {gone} refused");
    assert!(mapped > 0 && gone > 0, "{mapped} fills, {gone} refused");
    assert!(!rig.cuda.is_poisoned());
}

#[test]
fn device_memory_is_gone_when_it_is_unmapped_whatever_queues_do() {
    if !is_child(
        "racing::device_memory_is_gone_when_it_is_unmapped_whatever_queues_do",
        &[],
    ) {
        return;
    }
    let rig = Rig::new();
    let space = &*rig.space;
    let scratch = rig.buffer(MemoryKind::Device, GRANULE);
    let (address, end) = (AtomicU64::new(scratch.va), AtomicBool::new(false));
    let held_up = std::thread::scope(|scope| {
        let hammers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| hammer(space, &address, &end)))
            .collect();
        let held_up = (0..200).filter(|_| {
            let memory = rig.allocate(MemoryKind::Device, GRANULE).unwrap();
            let account = std::sync::Arc::downgrade(&memory);
            let access = Access::ReadWrite;
            let va = rig.space.map(None, &memory, 0, GRANULE, access).unwrap();
            drop(memory);
            rig.space.unmap(va).unwrap();
            account.upgrade().is_some()
        });
        let held_up = held_up.count();
        end.store(true, Ordering::SeqCst);
        for hammer in hammers {
            hammer.join().unwrap();
        }
        held_up
    });
    // Who feeds a queue may be kept from a busy processor for longer than is waited.
    assert!(held_up < 10, "{held_up} of 200 were held up");
    assert!(!rig.cuda.is_poisoned());
}
