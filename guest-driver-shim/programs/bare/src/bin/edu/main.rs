//! Tests QEMU's educational device, which is passed through: registers, DMA and interrupts.
//!
//! Arguments: none for all tests; `stray=ADDRESS` to make the device access that address, where the
//! guest has no memory, before the tests; `hold` to use the device until the end of the run.
#![no_std]
#![no_main]

mod interrupts;

use causeway_bare::{Machine, device_memory, println};
use causeway_guests::edu::{self, BAR, DmaMemory, Edu, TRANSFER_BYTES};
use causeway_guests::function::PciFunction;
use causeway_guests::{Required, pattern};
use causeway_shim::Window;

causeway_bare::main!(run);

/// Size of BAR 0 in bytes.
const REGISTERS_BYTES: u64 = 1 << 20;
/// Number of uses between two lines that a guest with `hold` prints.
const USES: u32 = 1_000;
/// Time between two uses. An emulator that serves registers under one lock starves its other
/// processors, if one of them does nothing but access registers.
const REST_NS: u64 = 1_000_000;

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let function = PciFunction::find(edu::IDS).required("QEMU's educational device");
    let address = function.enable(BAR).required("its registers");
    println!("edu: registers at {address:#x}");
    let registers = device_memory(address, REGISTERS_BYTES).required("its registers");
    let edu = Edu(registers);
    edu::introduce(&edu);
    let (source, target) = (page(machine), page(machine));
    match machine.arguments().split_once('=') {
        None if machine.arguments() == "hold" => hold(machine, &edu),
        // Only the first of several guests.
        Some(("stray", at)) if machine.vm() == 0 => stray(&edu, number(at), &target),
        _ => {}
    }
    edu::factorials(&edu);
    edu::dma(&edu, &source, &target);
    edu::accesses(&edu);
    interrupts::run(&edu, &function);
    println!("edu: registers, DMA and interrupts are as they should be");
}

/// Returns memory for the device. The guest is identity-mapped, so CPU and device use the same
/// address.
fn page(machine: &Machine) -> DmaMemory {
    let window = machine.ram().window(TRANSFER_BYTES);
    let window = window.required("guest RAM");
    DmaMemory {
        window,
        address: window.as_ptr().as_ptr() as u32,
    }
}

fn number(text: &str) -> u32 {
    let digits = text.trim_start_matches("0x");
    u32::from_str_radix(digits, 16).required("an address")
}

/// Makes the device read and write at an address where the guest has no memory. It must not read
/// data of others. Its writes must not arrive; other guests and tests check that.
fn stray(edu: &Edu<Window>, address: u32, target: &DmaMemory) {
    let bytes = TRANSFER_BYTES as u32;
    edu.read_memory(address, bytes);
    edu.write_memory(address, bytes);
    edu.write_memory(target.address, bytes);
    let words = (0..TRANSFER_BYTES).step_by(8);
    let found = words.map(|at| target.window.load_u64(at).required("a word"));
    // The device decides what it stores after a refused read: nothing, or all-ones.
    let strange = found.filter(|word| ![0, u64::MAX].contains(word)).count();
    assert!(strange == 0, "{strange} words came from {address:#x}");
    pattern::write(&target.window, 0);
    println!("edu: reached for {address:#x}");
}

/// Uses the device and prints a line now and then. While the device is being reset, its registers
/// read as zero or all-ones.
fn hold(machine: &Machine, edu: &Edu<Window>) -> ! {
    let clock = machine.clock();
    let mut said = 0;
    for value in 1.. {
        let answer = edu.liveness(value);
        if answer == !value && value >= said {
            println!("edu: in use, {value}");
            said = value + USES;
        }
        clock.spin(REST_NS);
    }
    unreachable!("there are more values than a run has time for")
}
