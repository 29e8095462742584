//! Clients of one session: each owns what it made, and ends alone.

mod model;
mod ownership;
mod resets;
#[path = "../rig/mod.rs"]
mod rig;

use std::time::Duration;

use causeway_protocol::message::*;
use rig::*;
use zerocopy::IntoBytes;

/// Everything that a client can own, in one space.
struct Estate {
    space: u32,
    memory: u32,
    va: u64,
    offset: u64,
    module: u32,
    kernel: u32,
    recording: u32,
    buffer: Queue,
    token: Token,
}

fn with_kernels() -> Rig {
    let rig = Rig::new();
    rig.backend.define("add", 16, |launch| {
        launch.store(launch.parameter(0), launch.parameter(8))
    });
    rig.backend.define("hang", 0, |launch| {
        while !launch.stopped() {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    });
    rig
}

fn estate(guest: &Guest) -> Estate {
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Host, PAGE);
    let va = guest.map_gpu(space, memory, PAGE, READ_WRITE).unwrap();
    let offset = guest.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    let text = "kernel add\nkernel hang";
    let module = guest.load_module(space, text, 0x8000).unwrap();
    Estate {
        space,
        memory,
        va,
        offset,
        module,
        kernel: guest.kernel(module, "hang").unwrap().handle,
        recording: guest.record(space, &[release(va, 1).as_bytes()]).unwrap(),
        buffer: guest.command_buffer(space),
        token: guest.export(memory, READ_WRITE).unwrap(),
    }
}

#[track_caller]
fn bad_handle<T: std::fmt::Debug>(outcome: Result<T, Refused>, handle: u32) {
    assert_eq!(outcome.unwrap_err(), (Status::BadHandle, handle));
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Refused>, status: Status) {
    assert_eq!(outcome.unwrap_err().0, status);
}
