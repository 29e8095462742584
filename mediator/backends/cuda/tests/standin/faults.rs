use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_kernels::special;
use causeway_mediator::backend::{Backend, MemoryWork, Progress, Work};
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{Buffer, GRANULE, Rig, host, is_child};

const SHAPE: ([u32; 3], [u32; 3]) = ([2, 1, 1], [64, 1, 1]);

#[test]
fn a_wild_pointer_poisons_the_process_and_everything_says_so() {
    if !is_child(
        "faults::a_wild_pointer_poisons_the_process_and_everything_says_so",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let module = rig.load(special::PTX.as_bytes()).unwrap();
    let mut parameters = 0x7777_0000_0000_u64.to_le_bytes().to_vec();
    parameters.extend_from_slice(&1_u32.to_le_bytes());
    rig.launch(&module, special::WILD_STORE, SHAPE, &parameters)
        .unwrap();
    let fault = rig.wait().unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault);
    for part in ["CUDA_ERROR_ILLEGAL_ADDRESS", "700", "`wild_store`"] {
        assert!(fault.text.contains(part), "{part}: {fault}");
    }
    assert_eq!(rig.queue.finish().unwrap_err(), fault);
    assert!(rig.cuda.is_poisoned());
    let lost = |error: causeway_mediator::backend::BackendError| error.status;
    let space = rig.cuda.create_space(std::sync::Arc::default());
    assert_eq!(space.err().map(lost), Some(Status::DeviceLost));
    let queue = rig.space.create_queue(0);
    assert_eq!(queue.err().map(lost), Some(Status::DeviceLost));
    rig.load(special::PTX.as_bytes()).err().unwrap();
    rig.allocate(MemoryKind::Device, GRANULE).err().unwrap();
}

#[test]
fn a_trap_is_a_fault_of_the_kernel() {
    if !is_child("faults::a_trap_is_a_fault_of_the_kernel", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry t() { trap; }\n";
    let module = rig.load(ptx.as_bytes()).unwrap();
    rig.launch(&module, "t", SHAPE, &[]).unwrap();
    let fault = rig.queue.finish().unwrap_err();
    assert_eq!(fault.status, Status::KernelFault, "{fault}");
}

/// Starts a kernel that ends only when told to.
pub fn endless(rig: &mut Rig) -> Buffer {
    let flag = rig.buffer(MemoryKind::Host, GRANULE);
    // The module may go: what is under way keeps what it needs.
    let module = rig.load(special::PTX.as_bytes()).unwrap();
    rig.queue
        .submit(Work::Memory(MemoryWork::Release {
            address: flag.va + 8,
            value: 1,
        }))
        .unwrap();
    rig.launch(&module, special::FOREVER, SHAPE, &flag.va.to_le_bytes())
        .unwrap();
    while rig.space.load_u64(flag.va + 8) != Some(1) {}
    flag
}

#[test]
fn memory_that_is_unmapped_under_work_waits_for_it() {
    if !is_child(
        "faults::memory_that_is_unmapped_under_work_waits_for_it",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let flag = endless(&mut rig);
    assert_eq!(rig.queue.poll(), Ok(Progress::Busy));
    let view = host(&flag.memory);
    let account = std::sync::Arc::downgrade(&flag.memory);
    rig.space.unmap(flag.va).unwrap();
    drop(flag);
    assert!(account.upgrade().is_some(), "the kernel still reads it");
    // A queue that is never idle finds out by other means how far it is.
    let other = rig.buffer(MemoryKind::Device, GRANULE);
    view.0.store_u64(0, 1, Ordering::Release).unwrap();
    let begun = Instant::now();
    while account.upgrade().is_some() {
        rig.fill(other.va, 64, 1).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "never let go");
    }
    rig.wait().unwrap();
    assert!(!rig.cuda.is_poisoned());
}

#[test]
fn the_end_of_a_session_does_not_wait_for_an_endless_kernel() {
    if !is_child(
        "faults::the_end_of_a_session_does_not_wait_for_an_endless_kernel",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let flag = endless(&mut rig);
    rig.stop.store(true, Ordering::SeqCst);
    rig.queue.finish().unwrap();
    assert!(rig.cuda.is_poisoned(), "work is left behind");
    let view = host(&flag.memory);
    // All of this returns although the kernel goes on, and leaves it what it uses.
    drop(flag);
    drop(rig);
    assert_eq!(view.word(0), 0);
    view.0.store_u64(0, 1, Ordering::Release).unwrap();
}

#[test]
fn a_queue_may_be_dropped_with_work_under_way() {
    if !is_child("faults::a_queue_may_be_dropped_with_work_under_way", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Host, GRANULE);
    for pattern in 0..200 {
        rig.fill(memory.va, GRANULE, pattern).unwrap();
    }
    rig.renew_queue();
    assert_eq!(host(&memory.memory).word(0), 199 << 32 | 199);
}

#[test]
fn device_memory_that_is_unmapped_under_work_goes_at_once() {
    if !is_child(
        "faults::device_memory_that_is_unmapped_under_work_goes_at_once",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let flag = endless(&mut rig);
    let other = rig.buffer(MemoryKind::Device, GRANULE);
    let account = std::sync::Arc::downgrade(&other.memory);
    rig.free(other);
    // Or a guest could have any amount of memory of others' held back, with one kernel.
    assert!(account.upgrade().is_none(), "the kernel does not use it");
    host(&flag.memory)
        .0
        .store_u64(0, 1, Ordering::Release)
        .unwrap();
    rig.wait().unwrap();
}

#[test]
fn memory_that_is_scrubbed_behind_an_endless_kernel_holds_nobody_up() {
    if !is_child(
        "faults::memory_that_is_scrubbed_behind_an_endless_kernel_holds_nobody_up",
        &[("CAUSEWAY_STANDIN_FULL", "1")],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let flag = endless(&mut rig);
    let (cuda, stop) = (std::sync::Arc::clone(&rig.cuda), &rig.stop);
    let outcome = std::thread::scope(|scope| {
        let allocates = scope.spawn(|| {
            // All goes well until the kernel has begun.
            loop {
                let options = causeway_mediator::backend::AllocateOptions::default();
                let memory = cuda.allocate(MemoryKind::Device, GRANULE, options);
                if let Err(error) = memory {
                    return error.status;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::SeqCst);
        rig.queue.finish().unwrap();
        allocates.join().unwrap()
    });
    assert_eq!(outcome, Status::DeviceLost);
    host(&flag.memory)
        .0
        .store_u64(0, 1, Ordering::Release)
        .unwrap();
}
