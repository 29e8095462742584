//! Command buffers: order, faults and how far they reach, sleeping and stopping.

mod endings;
mod faults;
mod order;
mod priorities;
#[path = "../rig/mod.rs"]
mod rig;
mod rings;
mod turns;
mod watching;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_mediator::backend::Fault;
use causeway_protocol::message::*;
use rig::*;
use zerocopy::IntoBytes;

const LONG: Duration = Duration::from_secs(20);

/// A rig with a kernel `store` (address, value), loaded; gives rig, space and kernel handle.
fn with_store() -> (Rig, u32, u32) {
    let rig = Rig::new();
    rig.backend.define("store", 16, |launch| {
        launch.store(launch.parameter(0), launch.parameter(8))
    });
    let space = rig.guest.space();
    let module = rig.guest.load_module(space, "kernel store", 0).unwrap();
    let kernel = rig.guest.kernel(module, "store").unwrap().handle;
    (rig, space, kernel)
}

fn store(kernel: u32, address: u64, value: u64) -> Vec<u8> {
    launch(kernel, [address, value].as_bytes())
}

/// A kernel that runs until it is stopped; gives the flag that it runs.
fn define_endless(rig: &Rig) -> Arc<AtomicBool> {
    let running = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&running);
    rig.backend.define("endless", 0, move |launch| {
        flag.store(true, Ordering::Release);
        while !launch.stopped() {
            std::thread::yield_now();
        }
        Err(Fault::new(Status::KernelFault, "stopped"))
    });
    running
}

fn launch_endless(rig: &Rig, space: u32) -> Queue {
    let module = rig.guest.load_module(space, "kernel endless", 0).unwrap();
    let kernel = rig.guest.kernel(module, "endless").unwrap().handle;
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[&launch(kernel, &[])]);
    queue
}
