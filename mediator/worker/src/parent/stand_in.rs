//! The stand-in for a session whose worker has ended. It answers until the guest resets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Fault, Memory, Space,
};
use causeway_mediator::host::Host;
use causeway_mediator::{Mediator, Quota, Session};
use causeway_memory::SharedMemory;
use causeway_protocol::message::{MemoryKind, Status};

/// Returns a session that is lost because of `fault`: it answers `hello` and `query_fault`, and
/// refuses everything else.
pub(super) fn session(
    id: u64,
    attributes: Attributes,
    host: Arc<dyn Host>,
    quota: Quota,
    name: &str,
    fault: Fault,
) -> Arc<Session> {
    let mediator = Mediator::new(Arc::new(Absent(attributes)));
    let session = mediator.open_as(id, host, quota, name);
    session.lose(fault);
    session
}

/// The back end of a worker that has ended.
struct Absent(Attributes);

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
