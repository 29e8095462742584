//! With several CPUs, runs one kernel on all of them at once, each with a command buffer of its own. Then runs
//! every test kernel on the mediated GPU and verifies every result.
#![no_std]
#![no_main]

use causeway_bare::{Barrier, Machine, Phase, Totals, figure, println};
use causeway_guests::{CaseMemory, Pipeline, device, open, run_case};
use causeway_kernels::{CASES, case};
use causeway_protocol::harness::PhasePath;
use causeway_shim::Device;

use causeway_guests::Required;

causeway_bare::main!(run);

/// Kernel that runs on several CPUs at once.
const PARALLEL_CASE: &str = "saxpy";
/// Runs of it on each CPU.
const PARALLEL_RUNS: u32 = 4;
/// Time that the other CPUs get to park, in nanoseconds.
const PARKING_NS: u64 = 20_000_000;
/// Units of a command buffer.
const RING_UNITS: u64 = 256;

static BARRIER: Barrier = Barrier::new();

fn run(machine: &Machine) {
    let device = if machine.cpu() == 0 {
        open(machine).1
    } else {
        device()
    };
    if machine.cpus() > 1 {
        in_parallel(machine, device);
    }
    if machine.cpu() == 0 {
        every_case(machine, device);
    }
}

fn every_case(machine: &Machine, device: &'static Device<'static>) {
    let setup = Phase::begin(PhasePath::Setup, "setup");
    if machine.cpus() > 1 {
        // Others that wait would take cores from the device, so they park; that exit belongs to no data phase.
        machine.clock().spin(PARKING_NS);
    }
    let space = device.create_space().required("an address space");
    let mut pipeline = Pipeline::new(device, &space, RING_UNITS);
    let mut memory = CaseMemory::new(machine);
    setup.end(Totals {
        operations: 2,
        ..Totals::default()
    });
    let mut device_ns = 0;
    for case in CASES {
        let ns = run_case(device, &space, &mut pipeline, &mut memory, case, true);
        device_ns += ns;
        println!("{}: verified, {} us", case.name, ns / 1000);
    }
    figure("kernels verified", CASES.len() as f64, "kernels");
    figure("device time of all kernels", device_ns as f64 / 1e6, "ms");
}

/// Every CPU with an address space, a command buffer and buffers of its own.
fn in_parallel(machine: &Machine, device: &'static Device<'static>) {
    let case = case(PARALLEL_CASE).required("the kernel for all CPUs");
    {
        let space = device.create_space().required("an address space");
        let mut pipeline = Pipeline::new(device, &space, RING_UNITS);
        let mut memory = CaseMemory::new(machine);
        // While one CPU begins or ends the phase, the others keep still: an exit under way would be half counted.
        BARRIER.wait(machine.cpus());
        let first = machine.cpu() == 0;
        let phase = first.then(|| Phase::begin(PhasePath::Control, "all CPUs at once"));
        BARRIER.wait(machine.cpus());
        for _ in 0..PARALLEL_RUNS {
            run_case(device, &space, &mut pipeline, &mut memory, case, false);
        }
        BARRIER.wait(machine.cpus());
        if let Some(phase) = phase {
            let operations = u64::from(machine.cpus() * PARALLEL_RUNS);
            phase.end(Totals {
                operations,
                ..Totals::default()
            });
            println!(
                "{PARALLEL_CASE} on {} CPUs at once: verified",
                machine.cpus()
            );
        }
        BARRIER.wait(machine.cpus());
    }
    BARRIER.wait(machine.cpus());
}
