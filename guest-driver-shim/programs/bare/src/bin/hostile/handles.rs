//! Attacks with reserved bytes that are not zero, and with handles that do not exist, name an
//! object of another kind, or were freed.

use causeway_guests::Required;
use causeway_protocol::message::{self, OPCODES, Opcode, Status, message_bytes};
use causeway_shim::{MemoryKind, operation};
use zerocopy::IntoBytes;

use crate::batches::{header, send};
use crate::messages::{BOGUS, refuse};
use crate::target::Target;

/// Sets every byte of every message that must be zero.
pub fn reserved(target: &mut Target) {
    Target::fresh(&target.transport);
    for opcode in OPCODES {
        let bytes = message_bytes(*opcode);
        let mut message = [0; 4096];
        let message = &mut message[..bytes];
        // These are the head's reserved bytes, and the part of the body that only the reply uses.
        for at in (2..4)
            .chain(8..16)
            .chain(16 + opcode.request_bytes()..bytes)
        {
            message.fill(0);
            message[..16].copy_from_slice(header(*opcode).as_bytes());
            message[at] = 1;
            let outcome = send(target, message);
            let wanted = (Some(Status::ReservedNotZero), at as u32);
            assert_eq!(outcome, wanted, "byte {at} of {}", opcode.name());
            target.survived();
        }
    }
}

/// Passes every kind of wrong handle to every operation that takes a handle.
pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    let memory = device.allocate(4096, MemoryKind::Host).required("memory");
    let (space, memory) = (space.handle(), memory.handle());
    for handle in [0, BOGUS, u32::MAX - 1, space ^ 0x1_0000, memory ^ 0x1_0000] {
        for opcode in [
            Opcode::Free,
            Opcode::DestroySpace,
            Opcode::UnloadModule,
            Opcode::DestroyCommandBuffer,
            Opcode::DestroyRecording,
        ] {
            no_such(target, opcode, handle);
        }
    }
    for opcode in [
        Opcode::Free,
        Opcode::UnloadModule,
        Opcode::DestroyCommandBuffer,
        Opcode::DestroyRecording,
    ] {
        no_such(target, opcode, space);
    }
    for opcode in [
        Opcode::DestroySpace,
        Opcode::UnloadModule,
        Opcode::DestroyCommandBuffer,
        Opcode::DestroyRecording,
    ] {
        no_such(target, opcode, memory);
    }
    let stale = device.allocate(4096, MemoryKind::Host).required("memory");
    let handle = stale.handle();
    stale.free().required("freeing");
    no_such(target, Opcode::Free, handle);
    let newer = device.allocate(4096, MemoryKind::Host).required("memory");
    assert_ne!(
        newer.handle(),
        handle,
        "a handle must not come round at once"
    );
    no_such(target, Opcode::Free, handle);
    let mut bogus = message::GetKernel {
        module: memory,
        name_bytes: 1,
        name: [0; 512],
    };
    bogus.name[0] = b'x';
    refuse::<operation::GetKernel>(target, &device, &bogus, Status::BadHandle);
}

fn no_such(target: &mut Target, opcode: Opcode, handle: u32) {
    let mut message = [0; 64];
    message[..16].copy_from_slice(header(opcode).as_bytes());
    message[16..20].copy_from_slice(&handle.to_le_bytes());
    let outcome = send(target, &message[..message_bytes(opcode)]);
    assert_eq!(
        outcome,
        (Some(Status::BadHandle), handle),
        "{} of {handle:#x}",
        opcode.name()
    );
    target.survived();
}
