//! Runs a test kernel as its description says, and compares the results.

use crate::platform::{Machine, ModuleLoader, Phase, Totals};
use causeway_kernels::{Argument, CASE_BYTES_MAX, Case};
use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Kernel, LaunchShape, MemoryKind, Module,
    Parameters, Patience, Recorder, SubmitError,
};
use causeway_testdev_records::PhasePath;

use crate::{Pipeline, Required, touch};

/// Most buffers of a case.
const BUFFERS_MAX: usize = 8;
/// Replays of a recorded case.
const REPLAYS: u32 = 3;

/// RAM for the buffers of a case. Cases use it one after the other.
#[derive(Debug)]
pub struct CaseMemory {
    loader: ModuleLoader,
    want: &'static mut [u8],
    got: &'static mut [u8],
}

impl CaseMemory {
    /// Allocates the RAM of the machine.
    pub fn new(machine: &Machine) -> Self {
        let ram = machine.ram();
        let take = |bytes| {
            ram.bytes(bytes)
                .required("guest RAM for a kernel's buffers")
        };
        let (want, got) = (take(CASE_BYTES_MAX), take(CASE_BYTES_MAX));
        Self {
            loader: ModuleLoader::new(machine),
            want,
            got,
        }
    }

    /// Loads the PTX text `ptx` as a module. If the device refuses it, this ends the guest with the
    /// compiler's log.
    pub fn load_module<'d>(&mut self, space: &AddressSpace<'d>, ptx: &str) -> Module<'d> {
        self.loader.load(space, ptx)
    }
}

/// Splits the front of `memory` into one slice for each buffer of the case.
fn split<'m>(case: &Case, mut memory: &'m mut [u8]) -> [&'m mut [u8]; BUFFERS_MAX] {
    assert!(
        case.buffers.len() <= BUFFERS_MAX,
        "{} has too many buffers",
        case.name
    );
    let mut parts: [&mut [u8]; BUFFERS_MAX] = Default::default();
    for (part, buffer) in parts.iter_mut().zip(case.buffers) {
        let (front, rest) = memory.split_at_mut(buffer.bytes);
        (*part, memory) = (front, rest);
    }
    parts
}

/// Runs `case` on `pipeline` and verifies every buffer. With `marked`, the run has phases of its
/// own. Returns the time that the device took for the kernel, in nanoseconds.
pub fn run_case<'d>(
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    pipeline: &mut Pipeline<'d>,
    memory: &mut CaseMemory,
    case: &Case,
    marked: bool,
) -> u64 {
    let phase = marked.then_some(case.name);
    run_by(device, space, pipeline, memory, case, (phase, None))
}

/// Records `case` with `recorder`, replays it, in a phase called `name`, and verifies every buffer.
/// The result of the kernel must not depend on the number of its runs. Returns the nanoseconds of
/// one replay, as a mean of several.
pub fn replay_case<'d>(
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    pipeline: &mut Pipeline<'d>,
    memory: &mut CaseMemory,
    case: &Case,
    (name, recorder): (&str, Recorder),
) -> u64 {
    let by = (Some(name), Some(recorder));
    run_by(device, space, pipeline, memory, case, by) / u64::from(REPLAYS)
}

/// Runs a case: in a phase if `name` is given, and by replays if there is a recorder, or else by a
/// launch.
fn run_by<'d>(
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    pipeline: &mut Pipeline<'d>,
    memory: &mut CaseMemory,
    case: &Case,
    (phase, recorder): (Option<&str>, Option<Recorder>),
) -> u64 {
    let module = memory.load_module(space, case.ptx);
    let kernel = module.kernel(case.name).required(case.name);
    let buffers: [Option<Buffer<'d>>; BUFFERS_MAX] = core::array::from_fn(|i| {
        let bytes = case.buffers.get(i)?.bytes as u64;
        let buffer = Buffer::new(device, space, bytes, MemoryKind::Host).required(case.name);
        // The first access to the memory, so that the marked phase has no page fault.
        touch::pages(buffer.cpu.window());
        Some(buffer)
    });
    let parameters = parameters(case, &kernel, &buffers);
    let mut got = split(case, memory.got);
    for (index, part) in got.iter_mut().enumerate().take(case.buffers.len()) {
        case.fill(index, part);
    }
    let recording = recorder.map(|mut recorder| {
        let recorded = recorder.launch(shape(case), &parameters);
        recorded.required(case.name);
        recorder.record(space).required(case.name)
    });
    pipeline.arm();
    let phase = phase.map(|name| Phase::begin(PhasePath::Data, name));
    let submit = |commands: &mut CommandBuffer<'d>| match &recording {
        None => commands.launch(shape(case), &parameters),
        Some(recording) => (0..REPLAYS).try_for_each(|_| commands.replay(recording)),
    };
    let moved = data_path(case, pipeline, submit, &buffers, &mut got);
    if let Some(phase) = phase {
        phase.end(moved);
    }
    verify(case, memory.want, &got);
    for buffer in buffers.into_iter().flatten() {
        buffer.free().required(case.name);
    }
    elapsed_ns(pipeline)
}

fn shape(case: &Case) -> LaunchShape {
    LaunchShape {
        grid: case.grid,
        block: case.block,
        shared_bytes: case.dynamic_shared,
    }
}

fn parameters<'f>(
    case: &Case,
    kernel: &'f Kernel<'f>,
    buffers: &[Option<Buffer<'_>>; BUFFERS_MAX],
) -> Parameters<'f, 4> {
    let mut parameters = kernel.parameters().required(case.name);
    for (index, argument) in case.arguments.iter().enumerate() {
        match argument {
            Argument::Buffer(buffer) => {
                let buffer = buffers[*buffer].as_ref().required("the argument's buffer");
                parameters.set(index, &buffer.gpu.address())
            }
            Argument::U32(value) => parameters.set(index, value),
            Argument::F32(value) => parameters.set(index, value),
        }
        .required(case.name);
    }
    parameters
}

/// Stores `content` to the device's buffers, lets `submit` write the work, waits for it, and loads
/// the buffers into `content`. All of this is plain loads and stores.
fn data_path<'d>(
    case: &Case,
    pipeline: &mut Pipeline<'d>,
    submit: impl FnOnce(&mut CommandBuffer<'d>) -> Result<(), SubmitError>,
    buffers: &[Option<Buffer<'_>>; BUFFERS_MAX],
    content: &mut [&mut [u8]; BUFFERS_MAX],
) -> Totals {
    let rung = pipeline.commands.doorbells_rung();
    let mut bytes = 0;
    for (buffer, content) in buffers.iter().zip(&*content) {
        if let Some(buffer) = buffer {
            buffer.cpu.write(0, content).required("uploading");
            bytes += content.len() as u64;
        }
    }
    let stamps = pipeline.memory.gpu.address() + Pipeline::SCRATCH;
    let commands = &mut pipeline.commands;
    commands
        .timestamp(stamps)
        .and_then(|()| submit(commands))
        .and_then(|()| commands.timestamp(stamps + 8))
        .required(case.name);
    let value = pipeline.finish();
    pipeline.open();
    pipeline.wait(value, Patience::SPIN).required(case.name);
    for (buffer, content) in buffers.iter().zip(content) {
        if let Some(buffer) = buffer {
            buffer.cpu.read(0, content).required("downloading");
            bytes += content.len() as u64;
        }
    }
    Totals {
        operations: 1,
        bytes,
        doorbells: pipeline.commands.doorbells_rung() - rung,
    }
}

/// Compares every buffer, inputs too, with the results that the reference computes on the CPU.
fn verify(case: &Case, want: &mut [u8], got: &[&mut [u8]; BUFFERS_MAX]) {
    let mut want = split(case, want);
    let want = &mut want[..case.buffers.len()];
    for (index, part) in want.iter_mut().enumerate() {
        case.fill(index, part);
    }
    case.reference(want);
    for (index, want) in want.iter().enumerate() {
        case.compare(index, want, got[index]).required("verifying");
    }
}

fn elapsed_ns(pipeline: &Pipeline<'_>) -> u64 {
    let stamp = |at| {
        pipeline
            .memory
            .cpu
            .load_u64(Pipeline::SCRATCH as usize + at)
            .required("stamp")
    };
    stamp(8).saturating_sub(stamp(0))
}
