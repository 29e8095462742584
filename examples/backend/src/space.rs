//! The device's address spaces.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use causeway_cpu_queue::{HostHandle, Mappings, Part, WorkQueue};
use causeway_mediator::backend::{
    BackendError, Memory, Module, ModuleError, Queue, Recorded, Recording, Reservation, Space,
};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::kernel::{BuiltIn, Doubling};
use crate::unsupported;

/// An address space: which memory appears at which GPU address.
pub(crate) struct DoublerSpace {
    mappings: Arc<Mappings>,
    /// Set by the mediator when work must end.
    stop: Arc<AtomicBool>,
    doubled: Arc<AtomicU64>,
}

impl DoublerSpace {
    /// Returns an address space without mappings, with the addresses `addresses`. Its work adds to
    /// `doubled`, and ends early once `stop` is set.
    pub fn new(addresses: Range<u64>, stop: Arc<AtomicBool>, doubled: Arc<AtomicU64>) -> Self {
        Self {
            mappings: Arc::new(Mappings::new(addresses)),
            stop,
            doubled,
        }
    }
}

impl Space for DoublerSpace {
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        let host = HostHandle::memory_of(memory)
            .ok_or_else(|| BackendError::new(Status::BackEnd, "map memory of another back end"))?;
        let part = Part {
            account: memory,
            memory: host,
            offset,
            bytes,
            access,
        };
        self.mappings.map(wanted, part)
    }

    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        self.mappings.unmap(va)
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        self.mappings.set_access(va, access)
    }

    /// The device has its only kernel built in, so it does not read the code that guests give it.
    fn load_module(&self, _: &[u8], _: &mut Reservation) -> Result<Arc<dyn Module>, ModuleError> {
        Ok(Arc::new(BuiltIn))
    }

    fn create_queue(&self, _priority: i32) -> Result<Box<dyn Queue>, BackendError> {
        let (mappings, stop) = (Arc::clone(&self.mappings), Arc::clone(&self.stop));
        let doubling = Doubling {
            mappings: Arc::clone(&mappings),
            stop: Arc::clone(&stop),
            doubled: Arc::clone(&self.doubled),
        };
        Ok(Box::new(WorkQueue::new(mappings, stop, doubling)))
    }

    fn record(&self, _: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        Err(unsupported("record work"))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        self.mappings.load_u64(va)
    }
}
