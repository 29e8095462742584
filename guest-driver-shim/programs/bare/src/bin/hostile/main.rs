//! A guest that attacks the device in every way. The device must refuse each attack with a defined
//! status, and must work afterwards. In a run with several VMs, the others compute meanwhile and
//! verify every result.
#![no_std]
#![no_main]

mod batches;
mod clients;
mod execution;
mod faults;
mod handles;
mod holes;
mod kernels;
mod messages;
mod modules;
mod packets;
mod pci;
mod positions;
mod quotas;
mod random;
mod recordings;
mod registers;
mod target;
mod witness;

use causeway_bare::{Machine, figure, post, println};

use target::Target;

causeway_bare::main!(run);

/// Number of the mailbox in which the attacker tells that it is done.
const DONE: u32 = 0;

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    if machine.vm() != 0 {
        return witness::run(machine);
    }
    let mut target = Target::find(machine);
    target.attack("registers", registers::attack);
    target.attack("configuration space", pci::attack);
    target.attack("batches", batches::attack);
    target.attack("messages: memory", messages::attack);
    target.attack("messages: execution", execution::attack);
    target.attack("messages: reserved bytes", handles::reserved);
    target.attack("messages: handles", handles::attack);
    target.attack("messages: random", random::messages);
    target.attack("modules", modules::attack);
    target.attack("holes", holes::attack);
    target.attack("clients", clients::attack);
    target.attack("packets", packets::attack);
    target.attack("packets: launches", kernels::attack);
    target.attack("recordings", recordings::attack);
    target.attack("packets: random", random::packets);
    target.attack("ring positions", positions::attack);
    target.attack("faults", faults::attack);
    target.attack("quotas", quotas::attack);
    let attacks = target.attacks();
    figure("attacks that had a defined end", attacks as f64, "attacks");
    println!("hostile: {attacks} attacks, the device still works");
    post(DONE, &[0; 64]);
}
