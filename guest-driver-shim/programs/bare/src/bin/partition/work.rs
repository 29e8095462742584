//! Tests the work that the device does for a guest, and the work that it refuses.

use causeway_bare::{Machine, println};
use causeway_guests::{Pipeline, Required, refused};
use causeway_kernels::bench::PTX;
use causeway_shim::{AddressSpace, Buffer, Device, Module, RamRange, Status};

use crate::{BYTES, store, word};

/// Size of a copy in bytes.
const PART: u64 = 1 << 20;
/// Offset to which copies go.
const COPY: u64 = 8 << 20;
/// Offset to which the fill goes.
const FILL: u64 = 12 << 20;
const PATTERN: u32 = 0x5a5a_1234;
/// Size of the ring in units.
const UNITS: u64 = 256;
const LOG_BYTES: usize = 4096;
/// Number of the round whose words are copied.
const ROUND: u32 = 7;

/// Checks that every module is refused, with a log that has the reason.
pub fn refuse_kernels(machine: &Machine, space: &AddressSpace<'_>) {
    let ram = machine.ram();
    let log = ram.bytes(LOG_BYTES).required("guest RAM for a log");
    let room = RamRange {
        bytes: LOG_BYTES as u64,
        ..ram.range_of(log)
    };
    match Module::load(space, ram.range_of(PTX.as_bytes()), room) {
        Ok(_) => panic!("a device without a processor has taken a module"),
        Err(error) => {
            let log = core::str::from_utf8(&log[..(error.log_bytes as usize).min(LOG_BYTES)]);
            let log = log.required("a log in UTF-8");
            println!("partition: {log}");
            assert!(log.contains("--gpu"), "the log says no way out: {log}");
            refused::<()>("a module", Err(error), Status::Unsupported);
        }
    }
}

/// Checks copies within the memory, copies from and to host memory, and fills: bytes beside them
/// must not change.
pub fn copies_and_fills<'d>(
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    memory: &Buffer<'d>,
    vm: u32,
) {
    let window = memory.cpu.window();
    store(window, vm, ROUND);
    let host = Buffer::new(device, space, PART, causeway_shim::MemoryKind::Host);
    let host = host.required("host memory");
    let mut pipeline = Pipeline::new(device, space, UNITS);
    let commands = &mut pipeline.commands;
    let gpu = memory.gpu.address();
    let queued = commands
        .copy(gpu + COPY, gpu, PART)
        .and_then(|()| commands.copy(host.gpu.address(), gpu + PART, PART))
        .and_then(|()| commands.copy(gpu + COPY + PART, host.gpu.address(), PART))
        .and_then(|()| commands.fill(gpu + FILL, PART, PATTERN));
    queued.required("copies and a fill");
    pipeline.drain();
    for at in (0..BYTES as usize).step_by(8) {
        let (got, want) = (window.load_u64(at).required("a word"), wanted(vm, at));
        assert!(got == want, "{got:#x} is at {at:#x}, and not {want:#x}");
    }
    host.free().required("giving it back");
}

/// Returns the word that must be at `at` after the work.
fn wanted(vm: u32, at: usize) -> u64 {
    let place = at as u64;
    if (COPY..COPY + 2 * PART).contains(&place) {
        word(vm, ROUND, at - COPY as usize)
    } else if (FILL..FILL + PART).contains(&place) {
        u64::from(PATTERN) << 32 | u64::from(PATTERN)
    } else {
        word(vm, ROUND, at)
    }
}
