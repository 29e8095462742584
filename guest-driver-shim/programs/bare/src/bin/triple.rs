//! Executes an undefined instruction without an interrupt table: a triple fault.
#![no_std]
#![no_main]
#![allow(unsafe_code)] // The fault is the point.

use causeway_bare::Machine;

causeway_bare::main!(run);

fn run(_: &Machine) {
    // SAFETY: the instruction faults, and this machine ends on any fault: nothing runs after it.
    unsafe { core::arch::asm!("ud2", options(noreturn)) };
}
