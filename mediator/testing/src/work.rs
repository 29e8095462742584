//! Modules and recordings of the fake back end, and how their work executes.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use causeway_mediator::backend::{
    Fault, Kernel, LaunchOptions, LaunchShape, MemoryWork, Module, Recorded, Recording, Variable,
    Work, refuse_clusters,
};
use causeway_protocol::message::{PARAMETERS_MAX, Parameter, Status};
use causeway_protocol::packet::UNIT_BYTES;

use crate::array::FakeArray;
use crate::kernel::{FakeKernel, FakeLaunch};
use crate::live::Alive;
use crate::memory::SpaceMemory;

pub(crate) struct FakeModule {
    pub kernels: HashMap<String, Arc<dyn Kernel>>,
    pub variables: HashMap<String, Variable>,
    pub memory_bytes: u64,
    /// Where the variables are mapped.
    pub space: Arc<SpaceMemory>,
    pub _alive: Alive,
}

impl Drop for FakeModule {
    fn drop(&mut self) {
        let mut mappings = self.space.mappings.lock();
        for variable in self.variables.values() {
            mappings.remove(&variable.address);
        }
    }
}

impl Module for FakeModule {
    fn kernel(&self, name: &str) -> Option<Arc<dyn Kernel>> {
        self.kernels.get(name).cloned()
    }

    fn kernels(&self) -> Vec<String> {
        self.kernels.keys().cloned().collect()
    }

    fn variable(&self, name: &str) -> Option<Variable> {
        self.variables.get(name).copied()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

pub(crate) struct FakeCausewayKernel {
    kernel: FakeKernel,
    parameters: Vec<Parameter>,
}

impl FakeCausewayKernel {
    pub fn boxed(kernel: FakeKernel) -> Arc<dyn Kernel> {
        // As many as a message can describe.
        let words = (kernel.parameter_bytes as usize / 8).min(PARAMETERS_MAX) as u16;
        let parameter = |n| Parameter {
            offset: n * 8,
            size: 8,
        };
        Arc::new(Self {
            kernel,
            parameters: (0..words).map(parameter).collect(),
        })
    }
}

impl Kernel for FakeCausewayKernel {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn parameter_bytes(&self) -> u32 {
        self.kernel.parameter_bytes
    }

    fn block_threads_max(&self) -> u32 {
        512
    }

    fn shared_bytes(&self) -> u32 {
        1024
    }

    fn dynamic_shared_bytes_max(&self) -> u32 {
        47 << 10
    }

    /// A mebibyte for each 16 bytes of dynamic shared memory.
    fn launch_bytes(&self, shape: &LaunchShape, _: &LaunchOptions) -> u64 {
        u64::from(shape.shared_bytes) << 16
    }

    /// Clusters have up to two blocks.
    fn check_options(&self, _: &LaunchShape, options: &LaunchOptions) -> Result<(), Fault> {
        match options.cluster {
            [2, 1, 1] => Ok(()),
            _ => refuse_clusters(options),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(crate) struct FakeRecording {
    pub work: Vec<Recorded>,
    pub _alive: Alive,
}

impl Recording for FakeRecording {
    /// As if each piece took a unit of the device's memory.
    fn memory_bytes(&self) -> u64 {
        (self.work.len() * UNIT_BYTES) as u64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Executes a piece of work.
pub(crate) fn execute(space: &SpaceMemory, work: &Work<'_>) -> Result<(), Fault> {
    match work {
        Work::Launch(launch) => {
            let kernel = launch
                .kernel()
                .as_any()
                .downcast_ref::<FakeCausewayKernel>();
            let kernel = kernel.ok_or_else(|| foreign("kernel"))?;
            (kernel.kernel.run)(&FakeLaunch {
                shape: launch.shape(),
                options: launch.options(),
                parameters: launch.parameters(),
                memory: space,
            })
        }
        Work::Memory(work) => write(space, *work),
        Work::Array(copy) => {
            let array = copy.array().as_any().downcast_ref::<FakeArray>();
            array.ok_or_else(|| foreign("array"))?.copy(space, copy)
        }
        Work::Replay { recording } => {
            let mut pieces = recorded_in(recording)?.iter();
            pieces.try_for_each(|piece| execute(space, &piece.as_work()))
        }
    }
}

fn write(space: &SpaceMemory, work: MemoryWork) -> Result<(), Fault> {
    match work {
        MemoryWork::Copy {
            destination,
            source,
            bytes,
        } => space.copy(destination, source, bytes),
        MemoryWork::Fill {
            destination,
            bytes,
            pattern,
            width,
        } => space.fill(destination, bytes, pattern, width),
        MemoryWork::CopyRect(shape) => shape.rows().try_for_each(|(to, from)| {
            let (to, from) = (shape.destination.address + to, shape.source.address + from);
            space.copy(to, from, shape.width)
        }),
        MemoryWork::FillRect(shape) => shape.rows().try_for_each(|row| {
            let at = shape.destination + row;
            space.fill(at, shape.width, shape.pattern, shape.element)
        }),
        MemoryWork::Release { address, value } => space.write(address, &value.to_le_bytes()),
        MemoryWork::ReleaseHalf { address, value } => space.write(address, &value.to_le_bytes()),
        MemoryWork::Timestamp { address } => {
            let now = space.begun.elapsed().as_nanos() as u64;
            space.write(address, &now.max(1).to_le_bytes())
        }
    }
}

/// Copies work, to be kept.
pub(crate) fn recorded(work: &Work<'_>) -> Result<Vec<Recorded>, Fault> {
    match work {
        Work::Launch(launch) => Ok(vec![Recorded::from(*launch)]),
        Work::Memory(work) => Ok(vec![Recorded::Memory(*work)]),
        Work::Array(copy) => Ok(vec![Recorded::from(*copy)]),
        Work::Replay { recording } => recorded_in(recording).map(<[_]>::to_vec),
    }
}

fn recorded_in(recording: &Arc<dyn Recording>) -> Result<&[Recorded], Fault> {
    let recording = recording.as_any().downcast_ref::<FakeRecording>();
    let recording = recording.ok_or_else(|| foreign("recording"))?;
    Ok(&recording.work)
}

fn foreign(what: &str) -> Fault {
    Fault::new(Status::BackEnd, format!("a {what} of another back end"))
}
