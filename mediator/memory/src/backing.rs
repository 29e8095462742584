//! Memory that a guest can see: host memory, or memory of a device that CPUs reach through a BAR.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{MemoryError, SharedMemory};

/// Memory of a device that CPUs can reach, such as that behind BAR 1 of a GPU.
///
/// The holder can show it to a guest. It can be in another process than the allocation: the
/// descriptor [`Self::file`] crosses, and the other process imports it by the device's driver.
pub trait DeviceMemory: Send + Sync + Debug {
    /// Returns the size in bytes.
    fn bytes(&self) -> u64;

    /// Returns the descriptor of the allocation, for another process. Only the device's driver can
    /// map it.
    fn file(&self) -> BorrowedFd<'_>;

    /// Maps `[offset, offset + bytes)`, in multiples of 4 KiB, at an address that the driver
    /// chooses. Writes of a CPU are combined; reads are slow.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is not within the memory, [`MemoryError::Device`] if the
    /// driver refuses.
    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError>;
}

/// A mapping of device memory in this process, until dropped. Guests and the device write the
/// memory at any time.
pub trait DeviceMapping: Send + Sync + Debug {
    /// Returns the address of the first byte, which is page-aligned and never changes. Callers
    /// dereference it by volatile or atomic accesses only, within the mapped range.
    fn as_ptr(&self) -> NonNull<u8>;
}

/// Memory that can be placed in an aperture.
#[derive(Clone, Debug)]
pub enum Backing {
    /// A shared object, and the offset in it at which the memory begins.
    Host {
        /// The object.
        memory: Arc<SharedMemory>,
        /// First byte in it.
        offset: u64,
    },
    /// Memory of a device.
    Device(Arc<dyn DeviceMemory>),
}

impl Backing {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Host { memory, offset } => memory.bytes().saturating_sub(*offset),
            Self::Device(memory) => memory.bytes(),
        }
    }

    /// Returns the shared object and the offset in it, if this is host memory.
    pub fn host(&self) -> Option<(&Arc<SharedMemory>, u64)> {
        match self {
            Self::Host { memory, offset } => Some((memory, *offset)),
            Self::Device(_) => None,
        }
    }
}

impl From<Arc<SharedMemory>> for Backing {
    /// A whole object.
    fn from(memory: Arc<SharedMemory>) -> Self {
        Self::Host { memory, offset: 0 }
    }
}
