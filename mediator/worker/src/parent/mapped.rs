//! Memory of a device that its driver has mapped before it is placed.
//!
//! A driver may not come back, and a VMM maps what it places with locks held that the end of a
//! worker takes. So the mapping is made first, and ends when the locks are free again.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError};

/// Memory of a device with the mapping of one range of it. The driver unmaps the range when this
/// and all mappings that it has given out are dropped.
#[derive(Debug)]
pub(super) struct MappedDevice {
    memory: Arc<dyn DeviceMemory>,
    /// Offset and bytes.
    range: (u64, u64),
    mapping: Arc<dyn DeviceMapping>,
}

impl MappedDevice {
    /// Has the driver map `range` (offset and bytes) of `memory`.
    pub fn new(memory: Arc<dyn DeviceMemory>, range: (u64, u64)) -> Result<Self, MemoryError> {
        let (offset, bytes) = range;
        let mapping = memory.map(offset, bytes)?;
        Ok(Self {
            memory,
            range,
            mapping: mapping.into(),
        })
    }
}

impl DeviceMemory for MappedDevice {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Asks the driver only for another range.
    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        match (offset, bytes) == self.range {
            true => Ok(Box::new(Shared(Arc::clone(&self.mapping)))),
            false => self.memory.map(offset, bytes),
        }
    }
}

#[derive(Debug)]
struct Shared(Arc<dyn DeviceMapping>);

impl DeviceMapping for Shared {
    fn as_ptr(&self) -> NonNull<u8> {
        self.0.as_ptr()
    }
}
