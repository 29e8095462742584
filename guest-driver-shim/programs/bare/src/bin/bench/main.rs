//! Times operations of a guest with the GPU. The host repeats each sample natively for comparison.
//!
//! Arguments: `repetitions=N` (default 101), `peers=MIB` to time what two GPUs do with this much
//! memory of each other instead of the lines of one GPU, and `only=TEXT` to take only the line with
//! this name. Lines that the device does not support (for example without CPU-visible device
//! memory) are left out, with a message on the console.
#![no_std]
#![no_main]

mod allocations;
mod copies;
mod echo;
mod launches;
mod line;
mod multiprocessors;
mod peers;
mod ram;

use causeway_bare::{Machine, println};
use causeway_guests::{CaseMemory, Pipeline, Required, open};
use causeway_kernels::bench;
use causeway_shim::{AddressSpace, Device, Module};

use line::Selection;

causeway_bare::main!(run);

/// State that all lines need.
struct Bench<'d> {
    machine: Machine,
    device: &'d Device<'d>,
    space: &'d AddressSpace<'d>,
    selection: Selection,
    pipeline: Pipeline<'d>,
    module: &'d Module<'d>,
}

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let selection = Selection::parse(machine.arguments()).required("the arguments");
    match selection.peers_mib() {
        Some(mib) => peers::measure(machine, selection, mib << 20),
        None => measure(machine, selection),
    }
    println!("all lines are measured");
}

/// Measures the lines of one GPU.
fn measure(machine: &Machine, selection: Selection) {
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let mut memory = CaseMemory::new(machine);
    let module = memory.load_module(&space, bench::PTX);
    let mut bench = Bench {
        machine: *machine,
        device,
        space: &space,
        selection,
        pipeline: Pipeline::new(device, &space, 4096),
        module: &module,
    };
    launches::measure(&mut bench);
    copies::measure(&mut bench);
    allocations::measure(&mut bench);
    ram::measure(&mut bench);
    echo::measure(&mut bench);
    multiprocessors::count(&mut bench);
}
