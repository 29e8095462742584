//! Panics, so that a test can check that file, line and message reach the host.
#![no_std]
#![no_main]

use causeway_bare::Machine;

causeway_bare::main!(run);

fn run(machine: &Machine) {
    panic!(
        "this guest panics on CPU {} of {}",
        machine.cpu(),
        machine.cpus()
    );
}
