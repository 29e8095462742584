//! Device memory as this process sees it.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError};

/// A range of device memory behind a BAR of the GPU.
pub(crate) struct DeviceView {
    mapping: Box<dyn DeviceMapping>,
    bytes: u64,
}

impl DeviceView {
    /// Maps `bytes` bytes from `offset`, multiples of 4 KiB.
    pub(crate) fn new(
        memory: &dyn DeviceMemory,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, MemoryError> {
        let mapping = memory.map(offset, bytes)?;
        Ok(Self { mapping, bytes })
    }

    /// Loads an aligned 64-bit word; none if it is not aligned or not inside.
    pub(crate) fn load_u64(&self, offset: u64) -> Option<u64> {
        let inside = offset.checked_add(8)? <= self.bytes && offset.is_multiple_of(8);
        if !inside {
            return None;
        }
        // SAFETY: in the range that was mapped, whose first byte is page-aligned; others may write
        // an atomic.
        let word = unsafe {
            &*self
                .mapping
                .as_ptr()
                .as_ptr()
                .add(offset as usize)
                .cast::<AtomicU64>()
        };
        Some(word.load(Ordering::Acquire))
    }
}
