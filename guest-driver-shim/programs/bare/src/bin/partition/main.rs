//! Tests memory of a partitioned device: a guest finds what it stores, and no other guest does;
//! freed memory is empty for the next guest; copies and fills arrive; kernels are refused.
//!
//! Argument: `hold` to only use the memory until the end of the run, or until the device is lost.
#![no_std]
#![no_main]

mod turns;
mod work;

use causeway_bare::{Machine, Phase, Totals, println};
use causeway_guests::{Required, open, touch};
use causeway_shim::{AddressSpace, Buffer, Device, MemoryKind, Window};
use causeway_testdev_records::PhasePath;
use turns::Turns;

causeway_bare::main!(run);

/// Size of the memory that both guests have at the same time, in bytes.
const BYTES: u64 = 16 << 20;
/// Size of the memory that the guests have in turns, in bytes: more than half of the device's.
const TURN_BYTES: u64 = 36 << 20;
const TURNS: u32 = 3;
/// Longest time from the loss of the memory to the loss of the session, in nanoseconds.
const LOSS_NS: u64 = 20_000_000_000;
/// Number of words between two that are checked, if it is enough to check some.
const STRIDE: usize = 64;

fn run(machine: &Machine) {
    if machine.cpu() != 0 || machine.vm() > 1 {
        return;
    }
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let mut turns = Turns::new(machine);
    if machine.arguments() == "hold" {
        hold(machine, device, &space);
    }
    work::refuse_kernels(machine, &space);
    together(machine, device, &space, &mut turns);
    for turn in 0..TURNS {
        turns.wait_for(machine.vm(), turn);
        alone(device, machine.vm(), turn);
        turns.end();
    }
    println!("partition: memory of the device is each guest's own, and empty for the next");
}

/// Allocates memory of the device, and checks that it is empty.
fn memory<'d>(device: &'d Device<'d>, space: &AddressSpace<'d>, bytes: u64) -> Buffer<'d> {
    let memory = Buffer::new(device, space, bytes, MemoryKind::DeviceVisible);
    let memory = memory.required("memory of the device");
    assert_empty(memory.cpu.window());
    memory
}

#[track_caller]
fn assert_empty(window: &Window) {
    for at in (0..window.bytes()).step_by(8) {
        let word = window.load_u64(at).required("a word");
        assert!(word == 0, "{word:#x} was left at {at:#x}");
    }
}

/// Returns the word that guest `vm` stores at `at` in a round.
fn word(vm: u32, round: u32, at: usize) -> u64 {
    let seed = u64::from(vm) << 32 | u64::from(round) | 1 << 63;
    (at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn store(window: &Window, vm: u32, round: u32) {
    for at in (0..window.bytes()).step_by(8) {
        let stored = window.store_u64(at, word(vm, round, at));
        stored.required("a word");
    }
}

#[track_caller]
fn verify(window: &Window, vm: u32, round: u32) {
    for at in (0..window.bytes()).step_by(8) {
        let (got, want) = (window.load_u64(at).required("a word"), word(vm, round, at));
        assert!(got == want, "{got:#x} is at {at:#x}, and not {want:#x}");
    }
}

/// Uses memory of this guest while the other guest does the same.
fn together<'d>(
    machine: &Machine,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    turns: &mut Turns,
) {
    let vm = machine.vm();
    let memory = memory(device, space, BYTES);
    let window = memory.cpu.window();
    store(window, vm, 0);
    turns.meet();
    verify(window, vm, 0);
    turns.meet();
    stream(window);
    work::copies_and_fills(device, space, &memory, vm);
    memory.free().required("giving it back");
    turns.meet();
}

/// Does 10^6 loads and stores, and other work.
fn stream(window: &Window) {
    let words = BYTES / 8;
    let totals = Totals {
        operations: words,
        bytes: BYTES,
        doorbells: 0,
    };
    let phase = Phase::begin(PhasePath::Data, "2*10^6 stores to the device's memory");
    touch::store(window, 1);
    phase.end(totals);
    let phase = Phase::begin(PhasePath::Data, "2*10^6 loads from the device's memory");
    let (_, sum) = touch::load(window, 1);
    phase.end(totals);
    let want = touch::expected_sum(window, 1);
    assert!(sum == want, "the words' sum is {sum:#x}, and not {want:#x}");
}

/// Allocates memory that the other guest had in part, checks it, and leaves something in it.
fn alone(device: &Device<'_>, vm: u32, turn: u32) {
    let allocation = device.allocate(TURN_BYTES, MemoryKind::DeviceVisible);
    let allocation = allocation.required("most of the device's memory");
    let mapping = allocation.map_cpu(0, TURN_BYTES, causeway_shim::Access::ReadWrite);
    let mapping = mapping.required("mapping it");
    assert_empty(mapping.window());
    store(mapping.window(), vm, turn);
    verify(mapping.window(), vm, turn);
    mapping.unmap().required("unmapping it");
    allocation.free().required("giving it back");
}

/// Uses memory until the device is lost. Then the memory reads as other words: at first as those of
/// a device that is being reset.
fn hold<'d>(machine: &Machine, device: &'d Device<'d>, space: &AddressSpace<'d>) -> ! {
    let memory = memory(device, space, BYTES);
    let window = memory.cpu.window();
    store(window, 0, 0);
    println!("partition: in use");
    loop {
        for at in (0..window.bytes()).step_by(8 * STRIDE) {
            let (got, want) = (window.load_u64(at).required("a word"), word(0, 0, at));
            if got != want {
                await_loss(machine, device);
                println!("partition: the device is lost");
                causeway_bare::exit(0);
            }
        }
    }
}

fn await_loss(machine: &Machine, device: &Device<'_>) {
    let clock = machine.clock();
    let deadline = clock.now_ns() + LOSS_NS;
    while !device.is_lost() {
        let late = clock.now_ns() >= deadline;
        assert!(!late, "its memory has changed, but the device is not lost");
        clock.spin(1_000_000);
    }
}
