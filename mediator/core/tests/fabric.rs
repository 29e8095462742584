//! Fabric handles: who may ask for them, what an import counts for, and what nobody gets.

mod rig;

use causeway_mediator::{GuestSession, Quota};
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::message::*;
use causeway_protocol::registers::features;
use rig::*;

/// Fabric handles of the fake back end are numbers from 1.
const FIRST: [u8; FABRIC_HANDLE_BYTES] = {
    let mut handle = [0; FABRIC_HANDLE_BYTES];
    handle[0] = 1;
    handle
};
const BOTH: u64 = features::FABRIC_EXPORT | features::FABRIC_IMPORT;

fn rig(fabric: u64, pages: u64) -> Rig {
    let all = features::SHARING | features::DEVICE_VISIBLE | fabric;
    let quota = Quota {
        memory_bytes: pages * PAGE,
        ..Quota::default()
    };
    Rig::on(FakeBackend::with_features(all), quota)
}

fn allocate(guest: &Guest, kind: MemoryKind, pages: u64) -> Result<u32, Refused> {
    let request = Allocate {
        size: pages * PAGE,
        kind: kind as u32,
        flags: allocate_flags::FABRIC,
    };
    let reply: AllocateReply = guest.ask(Opcode::Allocate, &request)?;
    Ok(reply.handle)
}

fn export(guest: &Guest, handle: u32) -> Result<[u8; FABRIC_HANDLE_BYTES], Refused> {
    let request = HandleRequest {
        handle,
        ..HandleRequest::default()
    };
    let reply: FabricHandle = guest.ask(Opcode::ExportFabric, &request)?;
    Ok(reply.handle)
}

fn import(
    guest: &Guest,
    handle: [u8; FABRIC_HANDLE_BYTES],
    size: u64,
) -> Result<AllocateReply, Refused> {
    guest.ask(Opcode::ImportFabric, &ImportFabric { handle, size })
}

fn used_bytes(guest: &Guest) -> u64 {
    let attributes: Attributes = guest.ask(Opcode::QueryAttributes, &Empty {}).unwrap();
    attributes.memory_used_bytes
}

#[test]
fn a_session_without_the_feature_makes_gets_and_imports_nothing() {
    let unsupported = (Status::Unsupported, 0);
    let rig = rig(features::FABRIC_IMPORT, 8);
    let guest = &rig.guest;
    let refused = allocate(guest, MemoryKind::Device, 1);
    assert_eq!(refused, Err(unsupported));
    let memory = guest.memory(MemoryKind::Device, PAGE);
    assert_eq!(export(guest, memory), Err(unsupported));

    let rig = self::rig(features::FABRIC_EXPORT, 8);
    let guest = &rig.guest;
    let memory = allocate(guest, MemoryKind::Device, 1).unwrap();
    let handle = export(guest, memory).unwrap();
    for size in [0, PAGE] {
        let refused = import(guest, handle, size).unwrap_err();
        assert_eq!(refused, unsupported);
    }
}

#[test]
fn only_memory_that_was_made_for_it_has_a_handle_and_only_for_its_owner() {
    let rig = rig(BOTH, 8);
    let guest = &rig.guest;
    let bad_memory = (Status::BadMemory, 0);
    for kind in [MemoryKind::Host, MemoryKind::DeviceVisible] {
        assert_eq!(allocate(guest, kind, 1), Err(bad_memory));
        let memory = guest.memory(kind, PAGE);
        assert_eq!(export(guest, memory), Err(bad_memory));
    }
    let plain = guest.memory(MemoryKind::Device, PAGE);
    assert_eq!(export(guest, plain), Err(bad_memory));
    assert_eq!(export(guest, 99), Err((Status::BadHandle, 99)));

    let memory = allocate(guest, MemoryKind::Device, 1).unwrap();
    let handle = export(guest, memory).unwrap();
    assert_eq!(export(guest, memory), Ok(handle), "the same each time");
    // An importer has no right to give the memory away, by a handle or by a token.
    let other = rig.another();
    let imported = import(&other, handle, PAGE).unwrap();
    let denied = Status::AccessDenied;
    assert_eq!(export(&other, imported.handle).unwrap_err().0, denied);
    let refused = other.export(imported.handle, READ).unwrap_err();
    assert_eq!(refused.0, denied);
    // Nor has a session that was given the memory by a token.
    let token = guest.export(memory, READ_WRITE).unwrap();
    let shared = other.import(&token, READ_WRITE).unwrap();
    assert_eq!(export(&other, shared.handle).unwrap_err().0, denied);
}

#[test]
fn an_import_is_mapped_like_other_memory_and_reads_what_its_owner_wrote() {
    let rig = rig(BOTH, 8);
    let (owner, importer) = (&rig.guest, rig.another());
    let memory = allocate(owner, MemoryKind::Device, 2).unwrap();
    let handle = export(owner, memory).unwrap();
    let imported = import(&importer, handle, 2 * PAGE).unwrap();
    assert_eq!((imported.size, imported.access), (2 * PAGE, READ_WRITE));
    let space = importer.space();
    importer
        .map_gpu(space, imported.handle, 2 * PAGE, READ)
        .unwrap();
    let refused = importer.map_cpu(imported.handle, 0, PAGE, READ);
    assert_eq!(refused, Err((Status::BadMemory, 0)), "no CPU reaches it");
    importer.free(imported.handle).unwrap();
}

#[test]
fn handles_that_are_guessed_and_sizes_that_do_not_match_are_refused() {
    let rig = rig(BOTH, 8);
    let guest = &rig.guest;
    for (handle, size) in [(FIRST, PAGE), ([0xff; 64], PAGE), ([0; 64], 0)] {
        let refused = import(guest, handle, size).unwrap_err();
        assert_eq!(refused, (Status::BadToken, 0));
    }
    let memory = allocate(guest, MemoryKind::Device, 2).unwrap();
    assert_eq!(export(guest, memory), Ok(FIRST));
    for size in [1, PAGE - 1, PAGE, 2 * PAGE + 1, 3 * PAGE] {
        let refused = import(guest, FIRST, size).unwrap_err();
        assert_eq!(refused.0, Status::BadMemory, "{size}");
    }
    for size in [u64::MAX, u64::MAX - (PAGE - 1), 1 << 40] {
        let refused = import(guest, FIRST, size).unwrap_err();
        let kinds = [Status::BadMemory, Status::QuotaBytes];
        assert!(kinds.contains(&refused.0), "{size}: {refused:?}");
    }
    // Every byte counts.
    let mut other = FIRST;
    other[63] = 1;
    assert_eq!(import(guest, other, 0).unwrap_err().0, Status::BadToken);
    assert_eq!(used_bytes(guest), 2 * PAGE, "refusals leave no charge");
}

#[test]
fn a_question_answers_without_an_object() {
    let rig = rig(BOTH, 2);
    let guest = &rig.guest;
    let memory = allocate(guest, MemoryKind::Device, 2).unwrap();
    let handle = export(guest, memory).unwrap();
    // The quota has no byte left.
    let reply = import(guest, handle, 0).unwrap();
    assert_eq!((reply.handle, reply.access, reply.size), (0, 0, 0));
    guest.free(memory).unwrap();
    assert_eq!(import(guest, handle, 0).unwrap_err().0, Status::BadToken);
}

#[test]
fn memory_that_an_import_keeps_counts_for_the_importer() {
    let rig = rig(BOTH, 4);
    let guest = &rig.guest;
    let memory = allocate(guest, MemoryKind::Device, 2).unwrap();
    let handle = export(guest, memory).unwrap();
    let imported = import(guest, handle, 2 * PAGE).unwrap().handle;
    assert_eq!(used_bytes(guest), 4 * PAGE);
    // Freed, it exists on for the import: what is freed and what is kept are counted apart.
    guest.free(memory).unwrap();
    assert_eq!(used_bytes(guest), 2 * PAGE);
    assert_eq!(rig.backend.live().memories, 1);
    let next = allocate(guest, MemoryKind::Device, 2).unwrap();
    let handle = export(guest, next).unwrap();
    let refused = import(guest, handle, 2 * PAGE).unwrap_err();
    assert_eq!(refused, (Status::QuotaBytes, 0));
    guest.free(imported).unwrap();
    import(guest, handle, 2 * PAGE).unwrap();
}

#[test]
fn a_reset_lets_go_of_imports_and_of_memory_with_handles() {
    let rig = rig(BOTH, 8);
    let owner = &rig.guest;
    let importer = rig.another();
    let memory = allocate(owner, MemoryKind::Device, 2).unwrap();
    let handle = export(owner, memory).unwrap();
    import(&importer, handle, 2 * PAGE).unwrap();
    importer.session.reset();
    importer.hello();
    assert_eq!(used_bytes(&importer), 0);
    import(&importer, handle, 2 * PAGE).unwrap();
    owner.session.reset();
    owner.hello();
    // The importer keeps what it has; nobody else finds the memory of the fake's owner by then.
    assert_eq!(used_bytes(&importer), 2 * PAGE);
    importer.session.reset();
    assert_eq!(rig.backend.live().memories, 0);
}

#[test]
fn an_allocation_slot_is_taken_by_an_import_too() {
    let all = features::SHARING | BOTH;
    let quota = Quota {
        allocations: 1,
        ..Quota::default()
    };
    let rig = Rig::on(FakeBackend::with_features(all), quota);
    let memory = allocate(&rig.guest, MemoryKind::Device, 1).unwrap();
    let handle = export(&rig.guest, memory).unwrap();
    let refused = import(&rig.guest, handle, PAGE).unwrap_err();
    assert_eq!(refused, (Status::QuotaAllocations, 1));
}
