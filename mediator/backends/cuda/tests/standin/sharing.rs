//! Memory of one process in another.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

use causeway_mediator::backend::{Backend, Exported, Place};
use causeway_memory::PageSize;
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

use crate::support::{GRANULE, Rig, is_child, shown};

const IMPORT: &str = "CAUSEWAY_CUDA_TEST_IMPORT";

fn exported(kind: MemoryKind, file: OwnedFd, bytes: u64) -> Exported {
    Exported {
        kind,
        bytes,
        file,
        offset: 0,
        pages: PageSize::Small,
        place: Place::Own,
    }
}

/// The importer of the next test: its standard input is the memory.
#[test]
fn importer() {
    let Some(kind) = std::env::var_os(IMPORT) else {
        return;
    };
    let kind = match kind.to_str() {
        Some("host") => MemoryKind::Host,
        Some("visible") => MemoryKind::DeviceVisible,
        _ => MemoryKind::Device,
    };
    let mut rig = Rig::new();
    let file = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let import = |bytes| rig.cuda.import(exported(kind, file(), bytes));
    for bytes in [0, 4096 + 1, 64 * GRANULE] {
        let refused = import(bytes).err().map(|error| error.status);
        assert_eq!(refused, Some(Status::BadMemory), "{bytes}");
    }
    let memory = import(GRANULE).unwrap();
    let readable = rig.map(Arc::clone(&memory), Access::Read);
    assert_eq!(rig.download(readable.va, 8), [5, 0, 0, 0, 5, 0, 0, 0]);
    let writable = rig.map(memory, Access::ReadWrite);
    rig.fill(writable.va + 4096, 8, 6).unwrap();
    rig.queue.finish().unwrap();
    if kind == MemoryKind::DeviceVisible {
        assert_eq!(shown(&writable.memory).bytes(), GRANULE);
        assert_eq!(rig.space.load_u64(writable.va), Some(5 << 32 | 5));
    }
}

fn share(name: &str, kind: MemoryKind, word: &str) {
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(kind, GRANULE);
    rig.fill(memory.va, 8, 5).unwrap();
    rig.queue.finish().unwrap();
    let exported = memory.memory.export().unwrap();
    assert_eq!((exported.kind, exported.bytes), (kind, GRANULE));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::importer", "--nocapture"])
        .env(IMPORT, word)
        .stdin(Stdio::from(exported.file))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert_eq!(rig.download(memory.va + 4096, 4), [6, 0, 0, 0]);
}

#[test]
fn device_memory_is_shared() {
    share(
        "sharing::device_memory_is_shared",
        MemoryKind::Device,
        "device",
    );
}

#[test]
fn visible_memory_is_shared() {
    let kind = MemoryKind::DeviceVisible;
    share("sharing::visible_memory_is_shared", kind, "visible");
}

#[test]
fn host_memory_is_shared() {
    share("sharing::host_memory_is_shared", MemoryKind::Host, "host");
}

#[test]
fn other_descriptors_are_refused() {
    if !is_child("sharing::other_descriptors_are_refused", &[]) {
        return;
    }
    let rig = Rig::new();
    for kind in [MemoryKind::Device, MemoryKind::Host] {
        let file = std::fs::File::open("/dev/null").unwrap();
        let refused = rig.cuda.import(exported(kind, file.into(), GRANULE));
        assert_eq!(refused.err().unwrap().status, Status::BadMemory);
    }
}
