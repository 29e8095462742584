//! A back end: a device that can do one thing, which is to double numbers.
//!
//! It is the smallest back end that a guest can use. Its memory is host memory, which the CPU
//! copies and fills (`causeway_cpu_queue`); the device's work is the function [`Doubling::launch`].
//! A device with memory, addresses or queues of its own implements more of the traits:
//! `mediator/backends/vfio` and `mediator/backends/cuda` are examples.

mod kernel;
mod space;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_cpu_queue::HostHandle;
use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Memory, Space,
};
use causeway_memory::{PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::message::{MemoryKind, Status};

use space::DoublerSpace;

/// GPU addresses at which memory can be mapped. Lower ones stay unmapped, so that null pointers
/// fault.
const ADDRESSES: std::ops::Range<u64> = 0x1000_0000..0x7000_0000_0000;

/// The device.
#[derive(Debug)]
pub struct Doubler {
    attributes: Attributes,
    doubled: Arc<AtomicU64>,
}

impl Doubler {
    /// Returns a device that has doubled nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let attributes = Attributes {
            name: "doubler".to_owned(),
            memory_bytes: 1 << 30,
            granularity_bytes: PAGE_BYTES,
            va: ADDRESSES,
            compute_units: 1,
            warp_threads: 1,
            block_threads_max: 1024,
            shared_bytes_max: 0,
            // Neither PTX, nor guest RAM, nor memory of other sessions, nor recordings.
            features: 0,
        };
        let doubled = Arc::default();
        Arc::new(Self {
            attributes,
            doubled,
        })
    }

    /// Returns how many numbers the device has doubled.
    #[must_use]
    pub fn doubled(&self) -> u64 {
        self.doubled.load(Ordering::Relaxed)
    }
}

/// Returns the error of an operation that the device lacks.
fn unsupported(operation: &str) -> BackendError {
    BackendError::new(Status::Unsupported, operation)
}

impl Backend for Doubler {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        _: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        match kind {
            // Zeroed, and counted against the session's limit by the mediator.
            MemoryKind::Host => HostHandle::allocate(bytes, PageSize::Small),
            MemoryKind::Device | MemoryKind::DeviceVisible => {
                Err(unsupported("allocate memory of the device"))
            }
        }
    }

    fn import(&self, _: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        Err(unsupported("import memory"))
    }

    fn register_ram(
        &self,
        _: Arc<SharedMemory>,
        _: u64,
        _: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        Err(unsupported("use guest RAM"))
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        let doubled = Arc::clone(&self.doubled);
        Ok(Arc::new(DoublerSpace::new(ADDRESSES, stop, doubled)))
    }
}
