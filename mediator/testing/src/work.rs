//! Modules and recordings of the fake back end, and how their work executes.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use causeway_mediator::backend::{Fault, Function, Module, Recorded, Recording, Work};
use causeway_protocol::message::{Parameter, Status};
use causeway_protocol::packet::UNIT_BYTES;

use crate::kernel::{FakeKernel, FakeLaunch};
use crate::live::Alive;
use crate::memory::SpaceMemory;

pub(crate) struct FakeModule {
    pub kernels: HashMap<String, Arc<dyn Function>>,
    pub memory_bytes: u64,
    pub _alive: Alive,
}

impl Module for FakeModule {
    fn function(&self, name: &str) -> Option<Arc<dyn Function>> {
        self.kernels.get(name).cloned()
    }

    fn kernels(&self) -> Vec<String> {
        self.kernels.keys().cloned().collect()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

pub(crate) struct FakeFunction {
    kernel: FakeKernel,
    parameters: Vec<Parameter>,
}

impl FakeFunction {
    pub fn boxed(kernel: FakeKernel) -> Arc<dyn Function> {
        let words = (kernel.parameter_bytes / 8) as u16;
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

impl Function for FakeFunction {
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
    match *work {
        Work::Launch {
            function,
            shape,
            parameters,
        } => {
            let function = function.as_any().downcast_ref::<FakeFunction>();
            let function = function.ok_or_else(|| foreign("function"))?;
            (function.kernel.run)(&FakeLaunch {
                shape,
                parameters,
                memory: space,
            })
        }
        Work::Copy {
            destination,
            source,
            bytes,
        } => space.copy(destination, source, bytes),
        Work::Fill {
            destination,
            bytes,
            pattern,
            width,
        } => space.fill(destination, bytes, pattern, width),
        Work::Release { address, value } => space.write(address, &value.to_le_bytes()),
        Work::Timestamp { address } => {
            let now = space.begun.elapsed().as_nanos() as u64;
            space.write(address, &now.max(1).to_le_bytes())
        }
        Work::Replay { .. } => {
            let pieces = recorded(work)?;
            let mut pieces = pieces.iter();
            pieces.try_for_each(|piece| execute(space, &piece.as_work()))
        }
    }
}

/// Copies work, to be kept.
pub(crate) fn recorded(work: &Work<'_>) -> Result<Vec<Recorded>, Fault> {
    let piece = match *work {
        Work::Launch {
            function,
            shape,
            parameters,
        } => Recorded::Launch {
            function: Arc::clone(function),
            shape,
            parameters: parameters.into(),
        },
        Work::Copy {
            destination,
            source,
            bytes,
        } => Recorded::Copy {
            destination,
            source,
            bytes,
        },
        Work::Fill {
            destination,
            bytes,
            pattern,
            width,
        } => Recorded::Fill {
            destination,
            bytes,
            pattern,
            width,
        },
        Work::Release { address, value } => Recorded::Release { address, value },
        Work::Timestamp { address } => Recorded::Timestamp { address },
        Work::Replay { recording } => {
            let recording = recording.as_any().downcast_ref::<FakeRecording>();
            return match recording {
                Some(recording) => Ok(recording.work.clone()),
                None => Err(foreign("recording")),
            };
        }
    };
    Ok(vec![piece])
}

fn foreign(what: &str) -> Fault {
    Fault {
        status: Status::BackEnd,
        text: format!("a {what} of another back end"),
    }
}
