//! VM 0 computes all the time and verifies every result, while each other VM loses its device again
//! and again, resets it, and goes on. VM 0 ends when all others have ended.
//!
//! With the argument `faults=N`, each of the others loses its device by N kernels that fault.
//! Without it, the host kills their worker processes with SIGKILL. A VM ends when its worker ends
//! in another way, such as SIGABRT.
#![no_std]
#![no_main]

mod loser;
mod neighbour;

use causeway_bare::Machine;
use causeway_guests::Required;

causeway_bare::main!(run);

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let faults = faults(machine.arguments()).required("the arguments");
    match machine.vm() {
        0 => neighbour::run(machine),
        _ => loser::run(machine, faults),
    }
}

/// Parses the guest's arguments: the number of faults, or zero if the host kills workers.
fn faults(text: &str) -> Option<u32> {
    match text.split_once('=') {
        None if text.is_empty() => Some(0),
        Some(("faults", number)) => number.parse().ok().filter(|number| *number != 0),
        _ => None,
    }
}
