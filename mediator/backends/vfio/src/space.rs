//! Address spaces: mappings of device and host memory, and the work on them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::{Kernels, Mappings, Part, WorkQueue, WorkRecording};
use causeway_mediator::backend::{
    BackendError, Fault, Launch, Memory, Module, ModuleError, Queue, Recorded, Recording,
    Reservation, Space, Usage,
};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::memory::mapped_of;

/// GPU addresses at which mappings can be. Lower addresses stay unmapped, so that null pointers
/// fault.
pub(crate) const ADDRESSES: std::ops::Range<u64> = 0x1000_0000..0x7000_0000_0000;

/// The reason for which modules and kernels are refused.
const NO_KERNELS: &str = "--gpu vfio cannot execute kernels, only copies and fills, because the \
                          device has no processor for them; use --gpu software or cuda";

/// An address space of a session, as the mediator uses it.
pub(crate) struct VfioSpace {
    mappings: Arc<Mappings>,
    stop: Arc<AtomicBool>,
}

impl VfioSpace {
    /// Returns an address space without mappings. After the caller sets `stop`, work that runs in
    /// the address space ends early.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            mappings: Arc::new(Mappings::new(ADDRESSES)),
            stop,
        }
    }
}

impl Space for VfioSpace {
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        let mapped = mapped_of(memory)
            .ok_or_else(|| BackendError::new(Status::BackEnd, "map memory of another back end"))?;
        let part = Part {
            account: memory,
            memory: mapped,
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

    fn load_module(&self, _: &[u8], _: &mut Reservation) -> Result<Arc<dyn Module>, ModuleError> {
        Err(ModuleError::new(0, NO_KERNELS))
    }

    /// The CPU does the work: there are no priorities.
    fn create_queue(&self, _priority: i32) -> Result<Box<dyn Queue>, BackendError> {
        let (mappings, stop) = (Arc::clone(&self.mappings), Arc::clone(&self.stop));
        Ok(Box::new(WorkQueue::new(mappings, stop, NoKernels)))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        Ok(Arc::new(WorkRecording::new(work)))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        self.mappings.load_u64(va)
    }
}

/// Refuses every launch, in place of a processor.
struct NoKernels;

impl Kernels for NoKernels {
    fn launch(&self, _: &Launch<'_>, _: u64, _: &mut Usage) -> Result<(), Fault> {
        Err(Fault::new(Status::BadLaunch, NO_KERNELS))
    }
}
