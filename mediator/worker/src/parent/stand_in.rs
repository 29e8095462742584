//! The back end of the stand-in for a session whose worker has ended.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Memory, Space,
};
use causeway_memory::SharedMemory;
use causeway_protocol::message::{MemoryKind, Status};

/// The back end of a worker that has ended.
pub(super) struct Absent(pub Attributes);

fn lost<T>() -> Result<T, BackendError> {
    Err(BackendError::new(
        Status::DeviceLost,
        "the worker process has ended",
    ))
}

impl Backend for Absent {
    fn attributes(&self) -> &Attributes {
        &self.0
    }

    fn allocate(
        &self,
        _: MemoryKind,
        _: u64,
        _: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        lost()
    }

    fn import(&self, _: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        lost()
    }

    fn register_ram(
        &self,
        _: Arc<SharedMemory>,
        _: u64,
        _: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        lost()
    }

    fn create_space(&self, _: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        lost()
    }
}
