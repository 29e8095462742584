//! Tests CPU-visible memory of the device that two guests share, each in its own session.

use causeway_bare::{fetch, post};
use causeway_guests::{Required, refused};
use causeway_shim::{Access, Buffer, ExportToken, MemoryKind, Status};

use crate::{BYTES, Guest, store, verify};

/// Longest time to wait for the other guest, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// Numbers of the mailboxes: the tokens of two exports, and three signals.
const READ_WRITE: u32 = 0;
const READ_ONLY: u32 = 1;
const ANSWERED: u32 = 2;
const SEEN: u32 = 3;
const DONE: u32 = 4;

fn tell(subject: u32, token: ExportToken) {
    let mut mail = [0; 64];
    mail[..32].copy_from_slice(&token.0);
    post(subject, &mail);
}

#[track_caller]
fn hear(subject: u32) -> ExportToken {
    let mail = fetch(subject, WAIT_MS).required("a word from the other guest");
    let mut token = [0; 32];
    token.copy_from_slice(&mail[..32]);
    ExportToken(token)
}

/// Exports memory, and checks what the other guest has stored in it.
pub fn give(guest: &mut Guest<'_>) {
    let make = |seed| {
        let kind = MemoryKind::DeviceVisible;
        let memory = Buffer::new(guest.device, guest.space, BYTES, kind);
        let memory = memory.required("memory to share");
        store(memory.cpu.window(), seed);
        memory
    };
    let (shared, shown) = (make(4), make(5));
    let export = |memory: &Buffer<'_>, access| memory.allocation.export(access).required("export");
    tell(READ_WRITE, export(&shared, Access::ReadWrite));
    tell(READ_ONLY, export(&shown, Access::Read));
    hear(ANSWERED);
    let window = *shared.cpu.window();
    guest.phase(
        "the importer's stores, a kernel, loads",
        shared.gpu.address(),
        || verify(&window, 6, 1),
        || verify(&window, 6, 2),
    );
    verify(shown.cpu.window(), 5, 0);
    tell(SEEN, ExportToken([0; 32]));
    // An export ends with its owner.
    hear(DONE);
}

/// Imports memory, and stores answers where that is allowed.
pub fn take(guest: &mut Guest<'_>) {
    let import = guest.device.import(&hear(READ_WRITE), Access::ReadWrite);
    let import = import.required("importing");
    let cpu = import
        .map_cpu(0, BYTES, Access::ReadWrite)
        .required("mapping");
    let gpu = import.map_gpu(guest.space, 0, BYTES, Access::ReadWrite);
    let gpu = gpu.required("mapping for the GPU");
    verify(cpu.window(), 4, 0);
    let window = *cpu.window();
    guest.phase(
        "stores to an import, a kernel, loads",
        gpu.address(),
        || store(&window, 6),
        || verify(&window, 6, 1),
    );
    let shown = guest.device.import(&hear(READ_ONLY), Access::Read);
    let shown = shown.required("importing for loads");
    let write = shown.map_cpu(0, BYTES, Access::ReadWrite);
    refused("mapping it for stores", write, Status::AccessDenied);
    let loads = shown.map_cpu(0, BYTES, Access::Read).required("mapping");
    verify(loads.window(), 5, 0);
    tell(ANSWERED, ExportToken([0; 32]));
    hear(SEEN);
    verify(&window, 6, 2);
    tell(DONE, ExportToken([0; 32]));
}
