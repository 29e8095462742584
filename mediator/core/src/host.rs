//! The VMM as a session sees it. The mediator knows no KVM.

use std::sync::Arc;

use causeway_memory::{Backing, MemoryError, SharedMemory};
use causeway_protocol::Access;
use vmm_sys_util::eventfd::EventFd;

use crate::client::Client;

/// Why the VMM could not place memory in the aperture, or remove it.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The aperture has no free range of that size.
    #[error(
        "the guest's aperture (BAR 2) has no free range of {bytes} bytes: the guest \
         must unmap other memory first"
    )]
    Full {
        /// Number of bytes that the session asked to place.
        bytes: u64,
    },
    /// The kernel did not map the memory into the aperture's window.
    #[error("cannot place {bytes} bytes of memory in the guest's aperture")]
    Map {
        /// Number of bytes that the session asked to place.
        bytes: u64,
        /// The error of the mapping.
        source: MemoryError,
    },
    /// The hypervisor refused a change of a memory slot.
    #[error("the hypervisor cannot change the memory slot at aperture offset {offset:#x}")]
    Slot {
        /// Offset in the aperture, in bytes.
        offset: u64,
        /// The hypervisor's error.
        source: std::io::Error,
    },
    /// No placement begins at the offset.
    #[error("no memory is placed at aperture offset {offset:#x}")]
    Absent {
        /// Offset in the aperture, in bytes.
        offset: u64,
    },
}

/// The error for a guest-physical range that is not guest RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guest-physical range {address:#x}+{bytes:#x} is not guest RAM")]
pub struct RamError {
    /// First guest-physical address of the range.
    pub address: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
}

/// A contiguous range of guest RAM.
#[derive(Clone, Debug)]
pub struct RamRegion {
    /// First guest-physical address of the region.
    pub base: u64,
    /// The memory object that holds the region. The region covers the whole object.
    pub memory: Arc<SharedMemory>,
}

/// Where a command buffer lies in memory.
#[derive(Clone, Debug)]
pub struct RingPlace {
    /// The memory object that contains the command buffer.
    pub memory: Arc<SharedMemory>,
    /// Offset in bytes at which the command buffer begins in the memory object.
    pub offset: u64,
}

/// What a session needs from the VMM of its guest: the aperture, guest RAM, doorbells and
/// interrupts. Several threads call the methods at the same time, and may hold locks of the session
/// while they do. So an implementation must not call methods of a session.
pub trait Host: Send + Sync {
    /// Places `bytes` bytes of `backing`, from its byte `offset`, in the aperture, where the guest
    /// can access them with the rights `access`. Returns their offset in the aperture. All numbers
    /// are multiples of 4 KiB. With [`Access::None`], the range of the aperture is taken, and reads
    /// from it return all ones.
    ///
    /// # Errors
    /// * [`PlaceError::Full`] if the aperture has no free range of that size.
    /// * [`PlaceError::Map`] if the kernel or the device's driver does not map the memory.
    /// * [`PlaceError::Slot`] if the hypervisor refuses a memory slot.
    ///
    /// After an error, nothing has changed.
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError>;

    /// Changes the guest's access rights to the whole range that [`Self::place`] has placed at
    /// aperture offset `offset`.
    ///
    /// # Errors
    /// [`PlaceError::Absent`] if no placed range begins at `offset`, [`PlaceError::Map`] or
    /// [`PlaceError::Slot`] if the kernel refuses the change.
    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError>;

    /// Removes the whole range that [`Self::place`] has placed at aperture offset `offset`. When
    /// this returns, the guest cannot access the memory any more.
    ///
    /// # Errors
    /// [`PlaceError::Absent`] if no placed range begins at `offset`, [`PlaceError::Map`] or
    /// [`PlaceError::Slot`] if the kernel refuses; the guest may then still access the memory.
    fn remove(&self, offset: u64) -> Result<(), PlaceError>;

    /// Returns the regions of guest RAM, lowest address first.
    fn ram_regions(&self) -> Vec<RamRegion>;

    /// Returns the memory object that holds `bytes` bytes of guest RAM at guest-physical `address`,
    /// and the offset of the range in that object.
    ///
    /// # Errors
    /// [`RamError`] if the range is not guest RAM, or spans two objects.
    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError>;

    /// Copies `into.len()` bytes of guest RAM, from guest-physical `address`, to `into`.
    ///
    /// # Errors
    /// [`RamError`] if the range is not guest RAM.
    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError>;

    /// Copies `from` to guest RAM at guest-physical `address`.
    ///
    /// # Errors
    /// [`RamError`] if the range is not guest RAM.
    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError>;

    /// Makes each store of the guest to doorbell `index` signal `event`, until
    /// [`Self::unbind_doorbell`]. The doorbell belongs to the command buffer at `ring`.
    ///
    /// # Errors
    /// The error of the hypervisor, if it does not accept the event.
    fn bind_doorbell(&self, index: u32, event: &EventFd, ring: &RingPlace) -> std::io::Result<()>;

    /// Ends what [`Self::bind_doorbell`] began: stores to doorbell `index` signal `event` no
    /// longer.
    fn unbind_doorbell(&self, index: u32, event: &EventFd);

    /// Marks the interrupt of `client` as pending in register `InterruptStatus`, and interrupts the
    /// guest if the guest has enabled interrupts.
    fn raise(&self, client: Client);
}
