//! What others own is not there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::Quota;
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::message::*;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::rig::*;
use crate::{bad_handle, estate, refused, with_kernels};

#[test]
fn handles_that_others_own_are_none() {
    let rig = with_kernels();
    let (owner, thief) = (rig.guest.beside(1), rig.guest.beside(2));
    let theirs = estate(&owner);
    for (opcode, handle) in [
        (Opcode::DestroySpace, theirs.space),
        (Opcode::Free, theirs.memory),
        (Opcode::UnloadModule, theirs.module),
        (Opcode::DestroyCommandBuffer, theirs.buffer.handle),
        (Opcode::DestroyRecording, theirs.recording),
        (Opcode::DestroySpace, theirs.kernel),
    ] {
        bad_handle(thief.by_handle(opcode, handle), handle);
    }
    bad_handle(thief.export(theirs.memory, READ), theirs.memory);
    refused(thief.revoke(&theirs.token), Status::BadToken);
    bad_handle(thief.kernel(theirs.module, "add"), theirs.module);
}

#[test]
fn memory_and_mappings_that_others_own_are_not_there() {
    let rig = with_kernels();
    let (owner, thief) = (rig.guest.beside(1), rig.guest.beside(2));
    let theirs = estate(&owner);
    let (space, memory) = (thief.space(), thief.memory(MemoryKind::Host, RING_BYTES));
    let mapped = thief.map_gpu(theirs.space, memory, PAGE, READ);
    bad_handle(mapped, theirs.space);
    let mapped = thief.map_gpu(space, theirs.memory, PAGE, READ);
    bad_handle(mapped, theirs.memory);
    bad_handle(thief.map_cpu(theirs.memory, 0, PAGE, READ), theirs.memory);
    let unmapped = thief.unmap(Opcode::UnmapGpu, theirs.space, theirs.va);
    bad_handle(unmapped, theirs.space);
    let unmapped = thief.unmap(Opcode::UnmapCpu, 0, theirs.offset);
    refused(unmapped, Status::BadRange);
    bad_handle(thief.set_access(theirs.space, theirs.va, 0), theirs.space);
    refused(thief.set_access(0, theirs.offset, 0), Status::BadRange);
}

#[test]
fn nothing_is_made_of_what_others_own() {
    let rig = with_kernels();
    let (owner, thief) = (rig.guest.beside(1), rig.guest.beside(2));
    let theirs = estate(&owner);
    let (space, memory) = (thief.space(), thief.memory(MemoryKind::Host, RING_BYTES));
    let loaded = thief.load_module(theirs.space, "kernel add", 0x8000);
    bad_handle(loaded, theirs.space);
    let waited = thief.wait(theirs.space, theirs.va, 0, Duration::ZERO);
    bad_handle(waited, theirs.space);
    bad_handle(thief.notify(theirs.space, theirs.va, 0), theirs.space);
    let recorded = thief.record(theirs.space, &[release(0, 1).as_bytes()]);
    bad_handle(recorded, theirs.space);
    for (space, allocation, wrong) in [
        (theirs.space, memory, theirs.space),
        (space, theirs.memory, theirs.memory),
    ] {
        let request = CreateCommandBuffer {
            space,
            allocation,
            offset: 0,
            length: RING_BYTES,
        };
        let created = thief.ask::<_, CommandBufferReply>(Opcode::CreateCommandBuffer, &request);
        bad_handle(created, wrong);
    }
}

#[test]
fn what_others_own_is_found_neither_by_its_place_nor_by_packets() {
    let rig = with_kernels();
    let (owner, thief) = (rig.guest.beside(1), rig.guest.beside(2));
    let theirs = estate(&owner);
    let space = thief.space();
    let view = owner.host.map(theirs.offset).unwrap();
    view.write(0, b"kernel add").unwrap();
    let request = LoadModule {
        space,
        image_address: APERTURE_ADDRESS | theirs.offset,
        image_bytes: 10,
        ..LoadModule::default()
    };
    let loaded = thief.ask::<_, LoadModuleReply>(Opcode::LoadModule, &request);
    refused(loaded, Status::BadRange);
    // Packets find the functions and recordings of their own space only.
    let mut commands = thief.command_buffer(space);
    commands.submit(&[replay(theirs.recording).as_bytes()]);
    assert_eq!(commands.wait_for_fault(), Some(Status::BadHandle));

    let mut mine = theirs.buffer;
    mine.submit(&[replay(theirs.recording).as_bytes()]);
    eventually("the owner's work", || {
        view.load_u64(0, Ordering::Acquire) == Ok(1)
    });
}

#[test]
fn an_import_of_another_client_ends_with_its_exporter() {
    let rig = Rig::new();
    let (owner, importer) = (rig.guest.beside(1), rig.guest.beside(2));
    let memory = owner.memory(MemoryKind::Host, PAGE);
    let token = owner.export(memory, READ_WRITE).unwrap();
    let import = importer.import(&token, READ).unwrap().handle;
    importer.map_cpu(import, 0, PAGE, READ).unwrap();
    owner.reset();
    assert!(importer.host.placements().is_empty());
    refused(importer.map_cpu(import, 0, PAGE, READ), Status::Revoked);
    importer.reset();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn quotas_are_the_sessions_and_come_back_with_a_reset() {
    let rig = Rig::on(
        FakeBackend::new(),
        Quota {
            memory_bytes: 4 * PAGE,
            ..Quota::default()
        },
    );
    let (greedy, modest) = (rig.guest.beside(1), rig.guest.beside(2));
    greedy.memory(MemoryKind::Host, 4 * PAGE);
    refused(modest.allocate(MemoryKind::Host, PAGE), Status::QuotaBytes);
    greedy.reset();
    modest.memory(MemoryKind::Host, 4 * PAGE);
}

#[test]
fn an_observer_hears_which_clients_own_something() {
    let rig = Rig::new();
    let heard = Arc::<Mutex<Vec<_>>>::default();
    let told = Arc::clone(&heard);
    let tell = move |owners: u64| told.lock().push(owners);
    rig.guest.session.observe_owners(tell);
    let (one, other) = (rig.guest.beside(1), rig.guest.beside(2));
    let first = one.space();
    one.space();
    other.space();
    one.by_handle(Opcode::DestroySpace, first).unwrap();
    one.reset();
    other.reset();
    let [one, other] = [one, other].map(|guest| guest.client.bit());
    assert_eq!(*heard.lock(), [one, one | other, other, 0]);
}
