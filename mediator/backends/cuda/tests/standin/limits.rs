use causeway_mediator::backend::{AllocateOptions, Backend};
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{GRANULE, Rig, is_child, is_on_standin};

#[test]
fn what_is_kept_for_reuse_stands_in_nobodys_way() {
    let memory = (16 * GRANULE).to_string();
    if !is_child(
        "limits::what_is_kept_for_reuse_stands_in_nobodys_way",
        &[("CAUSEWAY_STANDIN_MEMORY", &memory)],
    ) {
        return;
    }
    let rig = Rig::new();
    let small: Vec<_> = (0..12)
        .map(|_| rig.allocate(MemoryKind::Device, GRANULE).unwrap())
        .collect();
    drop(small);
    let large = rig.allocate(MemoryKind::Device, 10 * GRANULE).unwrap();
    let refused = rig
        .allocate(MemoryKind::Device, 10 * GRANULE)
        .err()
        .unwrap();
    assert_eq!(refused.status, Status::NoMemory);
    let text = format!("{refused}: {:?}", refused.source);
    assert!(text.contains("OUT_OF_MEMORY"), "{text}");
    drop(large);
    rig.allocate(MemoryKind::Device, 10 * GRANULE).unwrap();
}

#[test]
fn locked_memory_has_a_limit_that_is_named() {
    if !is_child(
        "limits::locked_memory_has_a_limit_that_is_named",
        &[("CAUSEWAY_STANDIN_LOCKED_BYTES", "4194304")],
    ) {
        return;
    }
    let rig = Rig::new();
    rig.allocate(MemoryKind::Host, GRANULE).unwrap();
    let refused = rig.allocate(MemoryKind::Host, 4 * GRANULE).err().unwrap();
    assert_eq!(refused.status, Status::NoMemory);
    assert!(refused.context.contains("ulimit -l"), "{refused}");
}

#[test]
fn what_the_gpu_lacks_is_refused_by_its_name() {
    if !is_child(
        "limits::what_the_gpu_lacks_is_refused_by_its_name",
        &[("CAUSEWAY_STANDIN_ATTRIBUTES", "107=0,99=0")],
    ) {
        return;
    }
    let rig = Rig::new();
    let compressible = AllocateOptions {
        compressible: true,
        ..AllocateOptions::default()
    };
    let device = rig.cuda.allocate(MemoryKind::Device, GRANULE, compressible);
    let host = rig.allocate(MemoryKind::Host, GRANULE);
    for (refused, name) in [
        (device, "GENERIC_COMPRESSION_SUPPORTED"),
        (host, "HOST_REGISTER_SUPPORTED"),
    ] {
        let refused = refused.err().unwrap();
        assert_eq!(refused.status, Status::Unsupported);
        assert!(refused.context.contains(name), "{refused}");
    }
}

#[test]
fn compressible_memory_is_like_any_other() {
    if !is_child("limits::compressible_memory_is_like_any_other", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let compressible = AllocateOptions {
        compressible: true,
        ..AllocateOptions::default()
    };
    for _ in 0..3 {
        let memory = rig.cuda.allocate(MemoryKind::Device, GRANULE, compressible);
        let buffer = rig.map(memory.unwrap(), causeway_protocol::Access::ReadWrite);
        let seen = rig.download(buffer.va, GRANULE);
        assert!(seen.iter().all(|byte| *byte == 0));
        rig.fill(buffer.va, GRANULE, 1).unwrap();
        rig.queue.finish().unwrap();
        rig.free(buffer);
    }
}

#[test]
fn all_memory_of_the_gpu_comes_back() {
    if !is_child("limits::all_memory_of_the_gpu_comes_back", &[]) {
        return;
    }
    let free = || {
        let _opened = Rig::new();
        free_bytes()
    };
    let before = free();
    for _ in 0..5 {
        let mut rig = Rig::new();
        for kind in [MemoryKind::Device, MemoryKind::DeviceVisible] {
            let memory = rig.buffer(kind, 4 * GRANULE);
            let other = rig.buffer(kind, GRANULE);
            rig.fill(memory.va, GRANULE, 1).unwrap();
            rig.queue.finish().unwrap();
            rig.free(other);
        }
        assert!(free_bytes() < before);
        // The rest is still mapped when all of it ends.
    }
    assert_came_back(before, free());
}

/// Memory of the GPU that no process uses.
fn free_bytes() -> u64 {
    causeway_cuda::survey().unwrap().gpus[0].free_bytes
}

/// Free memory is what it was. A GPU's driver keeps a little for itself.
fn assert_came_back(before: u64, after: u64) {
    let kept = if is_on_standin() { 0 } else { 16 * GRANULE };
    assert!(after + kept >= before, "{before} before, {after} after");
}

#[test]
fn what_is_kept_counts_against_what_is_given_out() {
    if !is_child("limits::what_is_kept_counts_against_what_is_given_out", &[]) {
        return;
    }
    let rig = Rig::with(&causeway_cuda::Config {
        memory_bytes: Some(16 * GRANULE),
        ..causeway_cuda::Config::default()
    });
    let all = free_bytes();
    let taken = || (all - free_bytes()) / GRANULE;
    let small: Vec<_> = (0..12)
        .map(|_| rig.allocate(MemoryKind::Device, GRANULE).unwrap())
        .collect();
    drop(small);
    assert_eq!(taken(), 12, "kept");
    let large = rig.allocate(MemoryKind::Device, 14 * GRANULE).unwrap();
    assert_eq!(taken(), 14, "not beside what the guest may have");
    drop(large);
    rig.allocate(MemoryKind::Device, 16 * GRANULE).unwrap();
    assert!(taken() <= 16);
}
