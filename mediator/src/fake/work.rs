//! Modules, kernels and queues of the fake back end.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use causeway_protocol::message::{Parameter, Status};

use super::backend::{Alive, FakeKernel, FakeLaunch, lock};
use super::space::FakeSpace;
use crate::backend::{Fault, Function, Module, Progress, Queue, Recorded, Recording, Work};

pub(super) struct FakeModule {
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

pub(super) struct FakeFunction {
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

pub(super) struct FakeRecording(pub Vec<Recorded>);

impl Recording for FakeRecording {
    fn memory_bytes(&self) -> u64 {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) struct FakeQueue {
    pub space: FakeSpace,
    pub _alive: Alive,
}

impl Queue for FakeQueue {
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault> {
        if let Some(status) = lock(&self.space.failures).get("submit").copied() {
            let text = "the test wants it".to_owned();
            return Err(Fault { status, text });
        }
        match work {
            Work::Launch {
                function,
                shape,
                parameters,
            } => {
                let function = function.as_any().downcast_ref::<FakeFunction>();
                let function = function.ok_or_else(|| Fault {
                    status: Status::BackEnd,
                    text: "a function of another back end".to_owned(),
                })?;
                (function.kernel.run)(&FakeLaunch {
                    shape,
                    parameters,
                    space: &self.space,
                })
            }
            Work::Copy {
                destination,
                source,
                bytes,
            } => self.space.copy(destination, source, bytes),
            Work::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => self.space.fill(destination, bytes, pattern, width),
            Work::Release { address, value } => self.space.write(address, &value.to_le_bytes()),
            Work::Timestamp { address } => {
                let now = self.space.begun.elapsed().as_nanos() as u64;
                self.space.write(address, &now.max(1).to_le_bytes())
            }
            Work::Replay { recording } => {
                let recording = recording.as_any().downcast_ref::<FakeRecording>();
                let recording = recording.ok_or_else(|| Fault {
                    status: Status::BackEnd,
                    text: "a recording of another back end".to_owned(),
                })?;
                let mut pieces = recording.0.iter();
                pieces.try_for_each(|piece| self.submit(piece.as_work()))
            }
        }
    }

    fn poll(&mut self) -> Result<Progress, Fault> {
        Ok(Progress::Idle)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
