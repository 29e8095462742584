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
    #[error("the aperture has no room for {bytes} bytes")]
    Full {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The kernel did not map the memory into the aperture's window.
    #[error("cannot place {bytes} bytes in the aperture")]
    Map {
        /// Bytes asked for.
        bytes: u64,
        /// Why.
        source: MemoryError,
    },
    /// The hypervisor refused a change of a memory slot.
    #[error("cannot change the memory slot at aperture offset {offset:#x}")]
    Slot {
        /// Offset into the aperture.
        offset: u64,
        /// What the hypervisor said.
        source: std::io::Error,
    },
    /// No placement begins at the offset.
    #[error("nothing is placed at aperture offset {offset:#x}")]
    Absent {
        /// Offset into the aperture.
        offset: u64,
    },
}

/// A guest-physical range that is not RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guest-physical range {address:#x}+{bytes:#x} is not guest RAM")]
pub struct RamError {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A contiguous range of guest RAM.
#[derive(Clone, Debug)]
pub struct RamRegion {
    /// First guest-physical address.
    pub base: u64,
    /// The memory object; the region is all of it.
    pub memory: Arc<SharedMemory>,
}

/// The place of a command buffer in memory.
#[derive(Clone, Debug)]
pub struct RingPlace {
    /// The object that holds it.
    pub memory: Arc<SharedMemory>,
    /// Offset of the header page in the object, in bytes.
    pub offset: u64,
}

/// The VMM of a guest, as the guest's session sees it. Virtual CPU threads, the thread that watches
/// fences, and, on revocation, threads of other sessions call it. It calls no session.
pub trait Host: Send + Sync {
    /// Places `bytes` bytes of `backing`, from its byte `offset`, in the aperture. Returns the
    /// offset in the aperture. All numbers are multiples of 4 KiB. With [`Access::None`], the range
    /// is reserved and reads as all ones.
    ///
    /// # Errors
    /// * [`PlaceError::Full`] if the aperture has no free range of that size.
    /// * [`PlaceError::Map`] if the kernel or the device's driver does not map the memory.
    /// * [`PlaceError::Slot`] if the hypervisor refuses a memory slot.
    ///
    /// Then nothing has changed.
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError>;

    /// Changes the access rights of the whole placement at `offset`.
    ///
    /// # Errors
    /// As [`Self::place`]; [`PlaceError::Absent`] if no placement begins there.
    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError>;

    /// Removes the whole placement at `offset`. When it returns, the guest cannot reach the memory.
    ///
    /// # Errors
    /// [`PlaceError::Absent`] if no placement begins there, [`PlaceError::Map`] or
    /// [`PlaceError::Slot`] if the kernel refuses; the guest may then still reach the memory.
    fn remove(&self, offset: u64) -> Result<(), PlaceError>;

    /// Returns the regions of guest RAM, lowest address first.
    fn ram_regions(&self) -> Vec<RamRegion>;

    /// Returns the memory object behind a range of guest RAM, and the offset in it.
    ///
    /// # Errors
    /// [`RamError`] if the range is not guest RAM, or spans two objects.
    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError>;

    /// Copies `into.len()` bytes from guest RAM at `address`.
    ///
    /// # Errors
    /// [`RamError`] if the range is not guest RAM.
    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError>;

    /// Copies `from` to guest RAM at `address`.
    ///
    /// # Errors
    /// [`RamError`] if the range is not guest RAM.
    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError>;

    /// Binds doorbell `index` to `event`: a guest's store to the doorbell signals it, until
    /// [`Self::unbind_doorbell`]. The doorbell belongs to the command buffer at `ring`.
    ///
    /// # Errors
    /// The hypervisor's error, if it does not accept the event.
    fn bind_doorbell(&self, index: u32, event: &EventFd, ring: &RingPlace) -> std::io::Result<()>;

    /// Unbinds doorbell `index` from `event`.
    fn unbind_doorbell(&self, index: u32, event: &EventFd);

    /// Makes the interrupt of a client pending (register `InterruptStatus`), and interrupts the
    /// guest if it has enabled that.
    fn raise(&self, client: Client);
}
