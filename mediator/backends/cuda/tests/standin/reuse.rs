//! Memory that is given out again holds nothing of its last owner's.

use std::sync::Arc;

use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;

use crate::support::{GRANULE, Rig, host, is_child, is_on_standin};

#[test]
fn no_byte_of_a_former_owner_is_left_a_thousand_times() {
    if !is_child(
        "reuse::no_byte_of_a_former_owner_is_left_a_thousand_times",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let sink = rig.buffer(MemoryKind::Host, GRANULE);
    let view = host(&sink.memory);
    for round in 0..1000 {
        let kind = match round % 3 {
            0 => MemoryKind::Host,
            1 => MemoryKind::DeviceVisible,
            _ => MemoryKind::Device,
        };
        let memory = rig.buffer(kind, GRANULE);
        rig.copy(sink.va, memory.va, GRANULE).unwrap();
        rig.queue.finish().unwrap();
        let dirty = view.bytes(GRANULE).iter().position(|byte| *byte != 0);
        assert_eq!(dirty, None, "round {round}, {kind:?}");
        rig.fill(memory.va, GRANULE, 0xdead_beef).unwrap();
        // Host memory may be freed with that work under way; memory of the device is gone at once.
        if kind != MemoryKind::Host || round % 2 == 0 {
            rig.queue.finish().unwrap();
        }
        rig.free(memory);
    }
}

#[test]
fn memory_that_others_may_have_is_not_given_out_again() {
    if !is_child(
        "reuse::memory_that_others_may_have_is_not_given_out_again",
        &[],
    ) {
        return;
    }
    let rig = Rig::new();
    for kind in [MemoryKind::Device, MemoryKind::Host] {
        if kind == MemoryKind::Device && !is_on_standin() {
            // A GPU's descriptors do not tell allocations apart.
            continue;
        }
        let memory = rig.allocate(kind, GRANULE).unwrap();
        let shared = memory.export().unwrap();
        drop(memory);
        let next = rig.allocate(kind, GRANULE).unwrap();
        let other = next.export().unwrap();
        let inode = |file: &std::os::fd::OwnedFd| {
            use std::os::unix::fs::MetadataExt;
            let file = std::fs::File::from(file.try_clone().unwrap());
            file.metadata().unwrap().ino()
        };
        assert_ne!(inode(&shared.file), inode(&other.file), "{kind:?}");
    }
}

#[test]
fn memory_whose_descriptor_was_handed_out_is_not_given_out_again() {
    if !is_child(
        "reuse::memory_whose_descriptor_was_handed_out_is_not_given_out_again",
        &[],
    ) {
        return;
    }
    let rig = Rig::new();
    let allocate = || {
        let memory = rig.allocate(MemoryKind::Host, GRANULE).unwrap();
        let backing = memory.backing().unwrap();
        let shared = Arc::clone(backing.host().unwrap().0);
        let inode = rustix::fs::fstat(shared.file()).unwrap().st_ino;
        // The reference goes first: memory is used again that nobody else has when it is freed.
        (shared, memory, inode)
    };
    let (_, _, first) = allocate();
    let (shared, memory, again) = allocate();
    assert_eq!(first, again, "what nobody else has is used again");
    let kept = shared.hand_out(Access::Read);
    drop((shared, memory));
    assert_ne!(allocate().2, again);
    drop(kept.unwrap());
}
