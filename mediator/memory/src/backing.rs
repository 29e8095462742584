//! Memory that a guest can see: host memory, or memory of a device that CPUs reach through a BAR.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{MemoryError, SharedMemory};

/// Memory of a device that CPUs can access, for example through BAR 1 of a GPU.
///
/// A VMM can place the memory in a guest's aperture even if another process has allocated it: that
/// process sends the file descriptor [`Self::file`] to the VMM, which passes it to the device's
/// driver to import the memory.
pub trait DeviceMemory: Send + Sync + Debug {
    /// Returns the size of the memory in bytes.
    fn bytes(&self) -> u64;

    /// Returns the descriptor of the memory, by which another process can import the memory through
    /// the device's driver. Only that driver can map the descriptor.
    fn file(&self) -> BorrowedFd<'_>;

    /// Maps `bytes` bytes of the memory, from `offset`, into this process; both are multiples of 4
    /// KiB. The driver chooses the address. CPU writes are combined into larger ones; CPU reads are
    /// slow.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is not within the memory, [`MemoryError::Device`] if the
    /// driver refuses.
    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError>;
}

/// A range of device memory that is mapped into this process. Dropping it unmaps the range. Guests
/// and the device may write the memory at any time.
pub trait DeviceMapping: Send + Sync + Debug {
    /// Returns the address of the first byte, which is page-aligned and never changes. Callers may
    /// only use volatile or atomic accesses, within the mapped range.
    fn as_ptr(&self) -> NonNull<u8>;
}

/// Memory that a VMM can place in an aperture.
#[derive(Clone, Debug)]
pub enum Backing {
    /// A memory object, and the offset in it at which the memory begins.
    Host {
        /// The memory object.
        memory: Arc<SharedMemory>,
        /// Offset in the object at which the memory begins, in bytes.
        offset: u64,
    },
    /// Memory of a device.
    Device(Arc<dyn DeviceMemory>),
}

impl Backing {
    /// Returns the size of the memory in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Host { memory, offset } => memory.bytes().saturating_sub(*offset),
            Self::Device(memory) => memory.bytes(),
        }
    }

    /// Returns the memory object and the offset at which the memory begins in it; `None` for memory
    /// of a device.
    pub fn host(&self) -> Option<(&Arc<SharedMemory>, u64)> {
        match self {
            Self::Host { memory, offset } => Some((memory, *offset)),
            Self::Device(_) => None,
        }
    }
}

impl From<Arc<SharedMemory>> for Backing {
    /// Returns the whole object as memory for an aperture.
    fn from(memory: Arc<SharedMemory>) -> Self {
        Self::Host { memory, offset: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PAGE_BYTES, PageSize};

    /// Memory that nobody maps.
    #[derive(Debug)]
    struct Unmapped(SharedMemory);

    impl DeviceMemory for Unmapped {
        fn bytes(&self) -> u64 {
            2 * PAGE_BYTES
        }

        fn file(&self) -> BorrowedFd<'_> {
            self.0.file()
        }

        fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
            let reason = String::from("the test maps nothing");
            let _ = offset;
            Err(MemoryError::Device { bytes, reason })
        }
    }

    fn object() -> SharedMemory {
        SharedMemory::new("test", 4 * PAGE_BYTES, PageSize::Small).unwrap()
    }

    #[test]
    fn a_part_of_an_object_is_as_long_as_what_is_behind_its_offset() {
        let memory = Arc::new(object());
        let whole = Backing::from(Arc::clone(&memory));
        assert_eq!(whole.bytes(), 4 * PAGE_BYTES);
        let offset = 3 * PAGE_BYTES;
        let part = Backing::Host {
            memory: Arc::clone(&memory),
            offset,
        };
        assert_eq!(part.bytes(), PAGE_BYTES);
        let (found, at) = part.host().unwrap();
        assert!(Arc::ptr_eq(found, &memory) && at == offset);
        assert_eq!(whole.host().unwrap().1, 0);
    }

    #[test]
    fn memory_of_a_device_is_no_object_of_the_host() {
        let device = Backing::Device(Arc::new(Unmapped(object())));
        assert_eq!(device.bytes(), 2 * PAGE_BYTES);
        assert!(device.host().is_none());
    }
}
