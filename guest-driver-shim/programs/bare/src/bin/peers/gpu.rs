//! The GPUs of this VM, and work on them.

use causeway_bare::{Machine, PciTransport, Phase, Totals};
use causeway_guests::{Pipeline, Required};
use causeway_kernels::peers::{BLOCKS_MAX, THREADS};
use causeway_shim::{
    AddressSpace, CommandBuffer, Device, Kernel, LaunchShape, Parameters, Patience,
};
use causeway_testdev_records::PhasePath;

/// Blocks and threads that keep any GPU of today busy.
pub const SHAPE: LaunchShape = LaunchShape {
    grid: [BLOCKS_MAX, 1, 1],
    block: [THREADS, 1, 1],
    shared_bytes: 0,
};
/// One thread.
pub const ONE: LaunchShape = LaunchShape {
    grid: [1, 1, 1],
    block: [1, 1, 1],
    shared_bytes: 0,
};

/// What a guest says that has one GPU.
const NEEDS_TWO: &str =
    "finding the GPU: this guest needs two, such as --gpu software:0 --gpu software:1";

/// Finds the GPU with this place in the VM.
pub fn find(machine: &Machine, place: usize) -> PciTransport {
    PciTransport::find_nth(machine, place).required(NEEDS_TWO)
}

/// Finds the GPU with this place in the VM; in a VM with one GPU, that one, if the run has others.
pub fn find_or_only(machine: &Machine, place: usize) -> PciTransport {
    let found = PciTransport::find_nth(machine, place);
    if let Ok(found) = found {
        return found;
    }
    let only = PciTransport::find(machine).required(NEEDS_TWO);
    let of_run = open(&only).query_gpus().required("the number of the GPU");
    assert!(of_run.gpus > 1, "{NEEDS_TWO}");
    only
}

/// Opens a session.
pub fn open(transport: &PciTransport) -> Device<'_> {
    Device::open(transport).required("opening the device")
}

/// Returns the number of a GPU in the run.
pub fn number(transport: &PciTransport) -> u32 {
    open(transport)
        .query_gpus()
        .required("the number of the GPU")
        .gpu
}

/// How one GPU of the run reaches memory of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By kernels and copies.
    Peer,
    /// By copies only.
    Copies,
}

/// Returns how a GPU and GPU number `other` reach each other's memory.
pub fn way(transport: &PciTransport, other: u32) -> Way {
    let numbers = open(transport).query_gpus();
    let numbers = numbers.required("how GPUs reach each other");
    match numbers.copies & 1 << other {
        0 => Way::Peer,
        _ => Way::Copies,
    }
}

/// A session with a space and a command buffer.
pub struct Worker<'d> {
    pub space: &'d AddressSpace<'d>,
    pub pipeline: Pipeline<'d>,
    clock: causeway_bare::Clock,
}

impl<'d> Worker<'d> {
    pub fn new(machine: &Machine, device: &'d Device<'d>, space: &'d AddressSpace<'d>) -> Self {
        Self {
            space,
            pipeline: Pipeline::new(device, space, 256),
            clock: machine.clock(),
        }
    }

    /// Launches a kernel, in a phase of the data path if `phase` names one, and waits. Returns the
    /// nanoseconds that this took.
    pub fn launch(
        &mut self,
        shape: LaunchShape,
        parameters: &Parameters<'_, 4>,
        phase: Option<(&str, u64)>,
    ) -> u64 {
        self.run(phase, |commands| {
            commands.launch(shape, parameters).required("launching");
        })
    }

    /// Does what `work` writes, as [`Self::launch`] does.
    pub fn run(
        &mut self,
        phase: Option<(&str, u64)>,
        work: impl FnOnce(&mut CommandBuffer<'d>),
    ) -> u64 {
        self.pipeline.arm();
        let begun = phase.map(|(name, _)| Phase::begin(PhasePath::Data, name));
        let start = self.clock.now_ns();
        work(&mut self.pipeline.commands);
        let value = self.pipeline.finish();
        self.pipeline.open();
        self.pipeline
            .wait(value, Patience::SPIN)
            .required("waiting for the GPU");
        let took = self.clock.now_ns() - start;
        if let (Some(begun), Some((_, bytes))) = (begun, phase) {
            begun.end(Totals {
                operations: 1,
                bytes,
                doorbells: 0,
            });
        }
        took
    }
}

/// Returns the parameters of a kernel, all of them 64-bit numbers.
pub fn parameters<'f>(kernel: &'f Kernel<'f>, values: &[u64]) -> Parameters<'f, 4> {
    let mut parameters = kernel.parameters().required("the kernel's parameters");
    for (index, value) in values.iter().enumerate() {
        parameters.set(index, value).required("a parameter");
    }
    parameters
}
