//! Drives QEMU's educational device, which is passed through: registers, DMA, interrupts.
//!
//! Arguments: nothing, to do all of it; `stray=ADDRESS`, to have it reach for memory there, which
//! is not the guest's, before; `hold`, to use it until the end of the run.
#![no_std]
#![no_main]

mod interrupts;

use causeway_bare::{Machine, device_memory, println};
use causeway_guests::edu::{self, BAR, DmaMemory, Edu, TRANSFER_BYTES};
use causeway_guests::function::PciFunction;
use causeway_guests::{Required, pattern};
use causeway_shim::Window;

causeway_bare::main!(run);

/// Bytes of BAR 0.
const REGISTERS_BYTES: u64 = 1 << 20;
/// Uses between two words of a guest that only uses the device.
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
        // Of several guests, the first.
        Some(("stray", at)) if machine.vm() == 0 => stray(&edu, number(at), &target),
        _ => {}
    }
    edu::factorials(&edu);
    edu::dma(&edu, &source, &target);
    edu::accesses(&edu);
    interrupts::run(&edu, &function);
    println!("edu: registers, DMA and interrupts are as they should be");
}

/// Memory for the device. One to one: where it is for the CPU, it is for the device.
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

/// Has the device read and write where the guest has no memory. It must get nothing that anybody
/// has stored; what it writes must not arrive anywhere, which those to whom it might say.
fn stray(edu: &Edu<Window>, address: u32, target: &DmaMemory) {
    let bytes = TRANSFER_BYTES as u32;
    edu.read_memory(address, bytes);
    edu.write_memory(address, bytes);
    edu.write_memory(target.address, bytes);
    let words = (0..TRANSFER_BYTES).step_by(8);
    let found = words.map(|at| target.window.load_u64(at).required("a word"));
    // What a read that was refused gives is the device's affair; here nothing, or all-ones.
    let strange = found.filter(|word| ![0, u64::MAX].contains(word)).count();
    assert!(strange == 0, "{strange} words came from {address:#x}");
    pattern::write(&target.window, 0);
    println!("edu: reached for {address:#x}");
}

/// Uses it, and says so. While somebody resets it, it answers with nothing, or with all-ones.
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
