//! Memory of the native program's own, in pages as large as a guest's RAM has.
#![allow(unsafe_code, reason = "refers to a mapping that nobody else has")]

use causeway_memory::{Mapping, MemoryError, PageSize, SharedMemory};
use causeway_protocol::Access;

/// A zeroed buffer of this process, in 2 MiB pages where the host has them.
pub struct OwnMemory {
    mapping: Mapping,
}

impl OwnMemory {
    /// Returns a zeroed buffer of `bytes` bytes. All of its pages are present in memory, so that
    /// accesses cause no page faults.
    ///
    /// # Errors
    /// [`MemoryError`] if the host has too little memory.
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        let object = SharedMemory::new("native", bytes as u64, PageSize::Large)?;
        let mapping = object.map(0, bytes as u64, Access::ReadWrite)?;
        mapping.populate()?;
        Ok(Self { mapping })
    }

    /// Returns the whole buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.mapping.bytes() as usize;
        // SAFETY: the object was made here and given to nobody, and this is its only mapping, which
        // is borrowed exclusively; it is mapped, writable and initialized.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().as_ptr(), bytes) }
    }
}
