//! With several CPUs, runs one kernel on all of them at once, each with a command buffer of its
//! own. Then runs every test kernel on the mediated GPU and verifies every result.
use crate::platform::{
    Barrier, Machine, Phase, Totals, device, figure, open, println, recording_memory,
};
use crate::{CaseMemory, Pipeline, Required, replay_case, run_case};
use causeway_kernels::{CASES, case};
use causeway_protocol::registers::features;
use causeway_shim::{AddressSpace, Device, Recorder};
use causeway_testdev_records::PhasePath;

/// Name of the kernel that several CPUs launch at once.
const PARALLEL_CASE: &str = "saxpy";
/// Number of launches on each CPU.
const PARALLEL_RUNS: u32 = 4;
/// Time that the other CPUs get to park, in nanoseconds.
const PARKING_NS: u64 = 20_000_000;
/// Name of the kernel that is recorded and replayed. Its results do not depend on the number of its
/// runs.
const REPLAYED_CASE: &str = "vector_add";
/// Size of the guest RAM for the recording's packets, in bytes.
const RECORDING_BYTES: usize = 4096;
/// Size of a command buffer in units.
const RING_UNITS: u64 = 256;

static BARRIER: Barrier = Barrier::new();

/// Runs the part of one CPU.
pub fn run(machine: &Machine) {
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
        // CPUs that wait would take cores from the software engine, so they park. The exit of
        // parking belongs to no phase of the data path.
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
    if device.features() & features::RECORDING != 0 {
        replayed(machine, device, &mut pipeline, &mut memory, &space);
    }
    figure("kernels verified", CASES.len() as f64, "kernels");
    figure("device time of all kernels", device_ns as f64 / 1e6, "ms");
}

/// Runs one case by replays of a recording.
fn replayed(
    machine: &Machine,
    device: &'static Device<'static>,
    pipeline: &mut Pipeline<'static>,
    memory: &mut CaseMemory,
    space: &AddressSpace<'static>,
) {
    let case = case(REPLAYED_CASE).required("the kernel to replay");
    let (memory_of_packets, address) = recording_memory(machine, device, RECORDING_BYTES);
    let recorder = Recorder::new(memory_of_packets, address);
    let by = ("vector_add, replayed", recorder);
    let ns = replay_case(device, space, pipeline, memory, case, by);
    println!(
        "{REPLAYED_CASE}, recorded and replayed: verified, {} us",
        ns / 1000
    );
}

/// Runs a kernel on all CPUs at once. Each CPU has its own address space, command buffer and
/// buffers.
fn in_parallel(machine: &Machine, device: &'static Device<'static>) {
    let case = case(PARALLEL_CASE).required("the kernel for all CPUs");
    {
        let space = device.create_space().required("an address space");
        let mut pipeline = Pipeline::new(device, &space, RING_UNITS);
        let mut memory = CaseMemory::new(machine);
        // While one CPU begins or ends the phase, the others do nothing: an exit at that time might
        // be counted in part.
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
