//! Addresses that are not the guest's. The stand-in ends the process when it is given one that it
//! does not know.

use causeway_mediator::backend::{Backend, Fault, MemoryWork, Work};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{GRANULE, Rig, host, is_child};

/// The submission must be a memory fault that names the address; the queue refuses work afterwards.
fn refused(rig: &mut Rig, what: &str, submitted: Result<(), Fault>) {
    let fault = submitted.expect_err(what);
    assert_eq!(fault.status, Status::MemoryFault, "{what}: {fault}");
    let again = rig.fill(0x1000, 4, 0).expect_err("the queue refuses work");
    assert_eq!(again, fault);
    rig.renew_queue();
}

#[test]
fn no_address_but_a_mapped_one_reaches_the_driver() {
    if !is_child(
        "hostile::no_address_but_a_mapped_one_reaches_the_driver",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let own = rig.buffer(MemoryKind::Device, GRANULE);
    let local = vec![7_u8; 4096];
    let secret = local.as_ptr() as u64;
    let end = own.va + GRANULE;
    for (what, address, bytes) in [
        ("memory of the process", secret, 64),
        ("page zero", 0, 64),
        ("nowhere", 0x7777_0000_0000, 64),
        ("the end of all addresses", u64::MAX - 7, 8),
        ("more than there are addresses", own.va, u64::MAX),
        ("one byte beyond", end - 63, 64),
        ("one byte before", own.va - 1, 64),
        ("all of it and one more", own.va, GRANULE + 1),
    ] {
        let from = rig.copy(own.va, address, bytes);
        refused(&mut rig, what, from);
        let to = rig.copy(address, own.va, bytes);
        refused(&mut rig, what, to);
        let bytes = bytes.checked_next_multiple_of(4).unwrap_or(!3);
        let fill = rig.fill(address, bytes, 1);
        refused(&mut rig, what, fill);
    }
    for address in [secret & !7, 0, end, own.va - 8, u64::MAX - 7] {
        let release = rig
            .queue
            .submit(Work::Memory(MemoryWork::Release { address, value: 1 }));
        refused(&mut rig, "a release", release);
        let stamp = rig
            .queue
            .submit(Work::Memory(MemoryWork::Timestamp { address }));
        refused(&mut rig, "a timestamp", stamp);
    }
    assert!(local.iter().all(|byte| *byte == 7));
    assert!(!rig.cuda.is_poisoned(), "the driver knows nothing of it");
}

#[test]
fn rights_are_those_of_now() {
    if !is_child("hostile::rights_are_those_of_now", &[]) {
        return;
    }
    let mut rig = Rig::new();
    for kind in [MemoryKind::Device, MemoryKind::Host] {
        let memory = rig.buffer(kind, GRANULE);
        let other = rig.buffer(kind, GRANULE);
        rig.fill(memory.va, 64, 1).unwrap();
        rig.wait().unwrap();
        rig.space.set_access(memory.va, Access::Read).unwrap();
        rig.copy(other.va, memory.va, 64).unwrap();
        rig.wait().unwrap();
        let write = rig.fill(memory.va, 64, 1);
        refused(&mut rig, "a write", write);
        rig.space.set_access(memory.va, Access::None).unwrap();
        let read = rig.copy(other.va, memory.va, 64);
        refused(&mut rig, "a read", read);
        assert_eq!(rig.space.load_u64(memory.va), None);
        rig.space.set_access(memory.va, Access::ReadWrite).unwrap();
        rig.fill(memory.va, 64, 1).unwrap();
        rig.wait().unwrap();
        let va = memory.va;
        rig.free(memory);
        let gone = rig.fill(va, 64, 1);
        refused(&mut rig, "what was unmapped", gone);
        assert_eq!(
            rig.space.set_access(va, Access::Read).unwrap_err().status,
            Status::BackEnd
        );
        assert_eq!(rig.space.unmap(va).unwrap_err().status, Status::BackEnd);
    }
}

#[test]
fn one_space_has_no_mappings_of_another() {
    if !is_child("hostile::one_space_has_no_mappings_of_another", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Host, GRANULE);
    rig.fill(memory.va, 64, 1).unwrap();
    rig.wait().unwrap();
    let other = rig.cuda.create_space(std::sync::Arc::default()).unwrap();
    let mut queue = other.create_queue().unwrap();
    let fill = queue.submit(Work::Memory(MemoryWork::Fill {
        destination: memory.va,
        bytes: 64,
        pattern: 2,
        width: 4,
    }));
    assert_eq!(fill.unwrap_err().status, Status::MemoryFault);
    assert_eq!(other.load_u64(memory.va), None);
    assert_eq!(host(&memory.memory).word(0), 0x1_0000_0001);
}
