//! Spins without exits until a timeout or a signal stops the VM.
#![no_std]
#![no_main]

use causeway_bare::Machine;

causeway_bare::main!(run);

fn run(_: &Machine) {
    loop {
        core::hint::spin_loop();
    }
}
