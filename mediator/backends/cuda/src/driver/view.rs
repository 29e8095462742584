//! Device memory that is mapped in this process.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError};

/// A range of device memory that is mapped in this process through a BAR of the GPU.
pub(crate) struct DeviceView {
    mapping: Box<dyn DeviceMapping>,
    bytes: u64,
}

impl DeviceView {
    /// Maps `bytes` bytes of `memory` from `offset`. Both are multiples of 4 KiB.
    pub(crate) fn new(
        memory: &dyn DeviceMemory,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, MemoryError> {
        let mapping = memory.map(offset, bytes)?;
        Ok(Self { mapping, bytes })
    }

    /// Loads the 64-bit word at `offset`; `None` if the offset is not a multiple of 8 or the word
    /// lies outside the range.
    pub(crate) fn load_u64(&self, offset: u64) -> Option<u64> {
        if offset.checked_add(8)? > self.bytes || !offset.is_multiple_of(8) {
            return None;
        }
        let base = self.mapping.as_ptr().as_ptr();
        // SAFETY: in the range that was mapped, whose first byte is page-aligned; others may write
        // an atomic.
        let word = unsafe { &*base.add(offset as usize).cast::<AtomicU64>() };
        Some(word.load(Ordering::Acquire))
    }
}
