//! What can be placed where a guest sees it: host memory, or memory of a device that CPUs reach through a BAR.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{MemoryError, SharedMemory};

/// Memory of a device that CPUs can reach, such as that behind BAR 1 of a GPU.
///
/// Whoever holds one can show it to a guest. It may live in another process than the allocation: what crosses is
/// [`Self::file`], and the other side makes of it what it knows how to map.
pub trait DeviceMemory: Send + Sync + Debug {
    /// Size in bytes.
    fn bytes(&self) -> u64;

    /// Descriptor of the allocation, to hand to another process. Only the device's driver knows how to map it.
    fn file(&self) -> BorrowedFd<'_>;

    /// Maps `[offset, offset + bytes)`, in multiples of 4 KiB, at an address of the driver's choice. Writes of a
    /// CPU are combined; reads are slow.
    ///
    /// # Errors
    /// [`MemoryError::Range`] and [`MemoryError::Device`].
    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError>;
}

/// Device memory in this process, until dropped. Guests and the device write it at any time.
pub trait DeviceMapping: Send + Sync + Debug {
    /// First byte; page-aligned. Stays where it is. Whoever dereferences it uses volatile or atomic accesses, within the
    /// range that was asked for.
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
    /// A device's own.
    Device(Arc<dyn DeviceMemory>),
}

impl Backing {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Host { memory, offset } => memory.bytes().saturating_sub(*offset),
            Self::Device(memory) => memory.bytes(),
        }
    }

    /// The shared object and the offset in it, if it is host memory.
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
