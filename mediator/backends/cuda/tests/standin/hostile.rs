//! Addresses that are not the guest's. The stand-in ends the process when it is given one that it
//! does not know.

use causeway_mediator::backend::{Backend, CopyShape, Fault, FillShape, MemoryWork, Work};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::packet::RectSide;

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

fn copied(to: u64, from: u64, (width, height, depth): (u64, u32, u32)) -> MemoryWork {
    let side = |address| RectSide {
        address,
        pitch: 256,
        rows: height,
    };
    MemoryWork::CopyRect(CopyShape {
        destination: side(to),
        source: side(from),
        width,
        height,
        depth,
    })
}

fn filled(destination: u64, height: u32, (pattern, element): (u32, u32)) -> MemoryWork {
    MemoryWork::FillRect(FillShape {
        destination,
        pitch: 256,
        height,
        width: 8,
        pattern,
        element,
    })
}

#[test]
fn rows_are_copied_and_filled_within_one_mapping() {
    if !is_child(
        "hostile::rows_are_copied_and_filled_within_one_mapping",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    let other = rig.buffer(MemoryKind::Host, GRANULE);
    let view = host(&other.memory);
    for (element, pattern, word) in [
        (1, 0x11, 0x1111_1111_1111_1111),
        (2, 0x1234, 0x1234_1234_1234_1234),
        (4, 0x1234_5678, 0x1234_5678_1234_5678),
    ] {
        rig.fill(memory.va, 4096, 0).unwrap();
        let fill = filled(memory.va + 256, 6, (pattern, element));
        rig.queue.submit(Work::Memory(fill)).unwrap();
        let copy = copied(other.va, memory.va, (16, 4, 2));
        rig.queue.submit(Work::Memory(copy)).unwrap();
        rig.queue.finish().unwrap();
        for row in 0..8 {
            let wanted = if (1..7).contains(&row) { word } else { 0 };
            assert_eq!(
                (view.word(256 * row), view.word(256 * row + 8)),
                (wanted, 0)
            );
        }
    }
    let local = vec![7_u8; 8192];
    let (secret, end) = (local.as_ptr() as u64, memory.va + GRANULE);
    for (what, at) in [
        ("memory of the process", secret),
        ("nowhere", 0x7777_0000_0000),
        ("one byte beyond", end - 256 - 7),
        ("one byte before", memory.va - 1),
    ] {
        for work in [
            copied(memory.va + 4096, at, (8, 2, 1)),
            copied(at, memory.va + 4096, (8, 2, 1)),
            filled(at, 2, (0, 1)),
        ] {
            let submitted = rig.queue.submit(Work::Memory(work));
            refused(&mut rig, what, submitted);
        }
    }
    let fits = filled(end - 256 - 8, 2, (0, 1));
    rig.queue.submit(Work::Memory(fits)).unwrap();
    rig.queue.finish().unwrap();
    // A shape that no packet may have: two sides that overlap, more rows than there may be.
    for work in [
        copied(memory.va, memory.va, (8, 2, 1)),
        copied(memory.va, other.va, (8, 1 << 11, 1 << 11)),
        filled(memory.va, u32::MAX, (0, 1)),
    ] {
        let submitted = rig.queue.submit(Work::Memory(work));
        refused(&mut rig, "a shape", submitted);
    }
    rig.space.set_access(memory.va, Access::Read).unwrap();
    let from = copied(other.va, memory.va, (8, 2, 1));
    rig.queue.submit(Work::Memory(from)).unwrap();
    let to = rig
        .queue
        .submit(Work::Memory(copied(memory.va, other.va, (8, 2, 1))));
    refused(&mut rig, "a write", to);
    assert!(local.iter().all(|byte| *byte == 7));
    assert!(!rig.cuda.is_poisoned(), "the driver knows nothing of it");
}

#[test]
fn rows_over_two_mappings_are_refused() {
    if !is_child("hostile::rows_over_two_mappings_are_refused", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let at = rig.cuda.attributes().va.start + 64 * GRANULE;
    for half in [0, GRANULE] {
        let memory = rig.allocate(MemoryKind::Device, GRANULE).unwrap();
        let rights = Access::ReadWrite;
        rig.space
            .map(Some(at + half), &memory, 0, GRANULE, rights)
            .unwrap();
    }
    let over = filled(at + GRANULE - 256, 2, (0, 1));
    let over = rig.queue.submit(Work::Memory(over));
    refused(&mut rig, "rows over two mappings", over);
    // What follows each other does.
    rig.fill(at + GRANULE - 256, 512, 0).unwrap();
    rig.queue.finish().unwrap();
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
    let mut queue = other.create_queue(0).unwrap();
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
