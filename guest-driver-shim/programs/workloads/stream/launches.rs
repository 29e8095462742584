//! Measures a launch and the wait for it: by spinning, which causes no exit, and by sleeping, which
//! causes two.

use crate::platform::{Machine, Phase, Totals, figure, println, ticks};
use crate::{CaseMemory, Pipeline, Required, median};
use causeway_kernels::special;
use causeway_shim::{
    AddressSpace, Buffer, Device, Kernel, LaunchShape, MemoryKind, Parameters, Patience,
};
use causeway_testdev_records::PhasePath;

/// Number of launches for which the guest waits by spinning.
const SPINNING: usize = 1000;
/// Number of launches for which the guest waits by sleeping.
const SLEEPING: usize = 100;
/// Shape of a launch: one block of one warp, because the overhead is measured.
const SHAPE: LaunchShape = LaunchShape {
    grid: [1, 1, 1],
    block: [32, 1, 1],
    shared_bytes: 0,
};
const THREADS: usize = 32;

/// Measures waits of both kinds.
pub fn measure(machine: &Machine, device: &'static Device<'static>, space: &AddressSpace<'static>) {
    let mut memory = CaseMemory::new(machine);
    let module = memory.load_module(space, special::PTX);
    let kernel = module.kernel(special::SPIN).required("the kernel");
    let states = Buffer::new(device, space, 4096, MemoryKind::Host).required("the states");
    let parameters = parameters(&kernel, &states);
    let mut pipeline = Pipeline::new(device, space, 256);

    let spinning = by_spinning(machine, &mut pipeline, &parameters);
    let sleeping = by_sleeping(machine, &mut pipeline, &parameters);
    verify(&states);
    figure(
        "launch and wait, spinning (median)",
        spinning as f64 / 1e3,
        "us",
    );
    figure(
        "launch and wait, sleeping (median)",
        sleeping as f64 / 1e3,
        "us",
    );
    println!("launch and wait: {spinning} ns spinning, {sleeping} ns sleeping");
}

fn parameters<'f>(kernel: &'f Kernel<'f>, states: &Buffer<'_>) -> Parameters<'f, 4> {
    let parameters = kernel.parameters().required("parameters");
    let parameters = parameters
        .with(0, &1_u32)
        .and_then(|p| p.with(1, &states.gpu.address()));
    parameters.required("parameters")
}

/// Measures waits that spin. The gate of the next launch is in the queue before the guest waits for
/// a launch, so the device never sleeps.
fn by_spinning(
    machine: &Machine,
    pipeline: &mut Pipeline<'_>,
    parameters: &Parameters<'_, 4>,
) -> u64 {
    pipeline.arm();
    let phase = (PhasePath::Data, "launch and wait, spinning");
    let median = sampled(machine, pipeline, &mut [0; SPINNING], phase, |pipeline| {
        let value = launch(pipeline, parameters);
        pipeline.arm();
        pipeline.open_but(1);
        pipeline.wait(value, Patience::SPIN).required("waiting");
    });
    pipeline.open();
    median
}

fn by_sleeping(
    machine: &Machine,
    pipeline: &mut Pipeline<'_>,
    parameters: &Parameters<'_, 4>,
) -> u64 {
    pipeline.drain();
    let patience = Patience {
        spins: 1,
        ..Patience::default()
    };
    let phase = (PhasePath::Control, "launch and wait, sleeping");
    sampled(machine, pipeline, &mut [0; SLEEPING], phase, |pipeline| {
        let value = launch(pipeline, parameters);
        pipeline.wait(value, patience).required("waiting");
    })
}

/// Launches the kernel, and returns the value of the fence behind it.
fn launch(pipeline: &mut Pipeline<'_>, parameters: &Parameters<'_, 4>) -> u64 {
    pipeline
        .commands
        .launch(SHAPE, parameters)
        .required("launching");
    pipeline.finish()
}

/// Calls a function once for each of `samples`, in a phase. Returns the median of the nanoseconds
/// that the calls took.
fn sampled(
    machine: &Machine,
    pipeline: &mut Pipeline<'_>,
    samples: &mut [u64],
    (path, name): (PhasePath, &str),
    mut once: impl FnMut(&mut Pipeline<'_>),
) -> u64 {
    let rung = pipeline.commands.doorbells_rung();
    let phase = Phase::begin(path, name);
    for sample in &mut *samples {
        let start = ticks();
        once(pipeline);
        *sample = ticks() - start;
    }
    phase.end(Totals {
        operations: samples.len() as u64,
        bytes: 0,
        doorbells: pipeline.commands.doorbells_rung() - rung,
    });
    machine.clock().nanoseconds(median(samples))
}

/// Checks that every launch has changed every state by one step.
fn verify(states: &Buffer<'_>) {
    let want = special::spun(0, (SPINNING + SLEEPING) as u32);
    for thread in 0..THREADS {
        let got = states.cpu.load_u32(thread * 4).required("a state");
        assert_eq!(got, want, "state of thread {thread}");
    }
}
