//! What a session needs of the VMM that hosts its guest. The mediator knows no KVM: it sees this.

use std::sync::Arc;

use causeway_memory::{Backing, MemoryError, SharedMemory};
use causeway_protocol::Access;
use vmm_sys_util::eventfd::EventFd;

use crate::client::Client;

/// Why memory could not be placed in, or removed from, the aperture.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// No free range of that size.
    #[error("the aperture has no room for {bytes} bytes")]
    Full {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The memory could not be mapped into the window.
    #[error("cannot place {bytes} bytes in the aperture")]
    Map {
        /// Bytes asked for.
        bytes: u64,
        /// Why.
        source: MemoryError,
    },
    /// The hypervisor refused a memory slot.
    #[error("cannot change the memory slot at aperture offset {offset:#x}")]
    Slot {
        /// Offset into the aperture.
        offset: u64,
        /// What the hypervisor said.
        source: std::io::Error,
    },
    /// No placement begins there.
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
    /// All of it.
    pub memory: Arc<SharedMemory>,
}

/// Where a command buffer begins.
#[derive(Clone, Debug)]
pub struct RingPlace {
    /// The object that holds it.
    pub memory: Arc<SharedMemory>,
    /// Offset of the header page in the object, in bytes.
    pub offset: u64,
}

/// The guest, as its session sees it. Called from vCPU threads, from the thread that watches fences, and, on revocation,
/// from threads of other sessions. It calls no session.
pub trait Host: Send + Sync {
    /// Makes `bytes` bytes of `backing`, from `offset` of it, appear in the aperture. Gives the offset there.
    /// Everything is a multiple of 4 KiB. With access none, the range is reserved and stays a hole.
    ///
    /// # Errors
    /// [`PlaceError`]; then nothing changed.
    fn place(
        &self,
        backing: &Backing,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, PlaceError>;

    /// Changes the access rights of a whole placement, by its offset.
    ///
    /// # Errors
    /// [`PlaceError`].
    fn set_access(&self, offset: u64, access: Access) -> Result<(), PlaceError>;

    /// Removes a whole placement, by its offset. When it returns, the guest cannot reach the memory any more.
    ///
    /// # Errors
    /// [`PlaceError`].
    fn remove(&self, offset: u64) -> Result<(), PlaceError>;

    /// What guest RAM is made of, lowest address first; each region is all of its object.
    fn ram_regions(&self) -> Vec<RamRegion>;

    /// The memory object behind a range of guest RAM, and the offset in it.
    ///
    /// # Errors
    /// [`RamError`], also if the range spans two objects.
    fn ram(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError>;

    /// Copies guest RAM out.
    ///
    /// # Errors
    /// [`RamError`].
    fn read_ram(&self, address: u64, into: &mut [u8]) -> Result<(), RamError>;

    /// Copies into guest RAM.
    ///
    /// # Errors
    /// [`RamError`].
    fn write_ram(&self, address: u64, from: &[u8]) -> Result<(), RamError>;

    /// Has a guest's store to doorbell `index` signal `event`, until [`Self::unbind_doorbell`]. It belongs to the command
    /// buffer at `ring`.
    ///
    /// # Errors
    /// What the hypervisor said.
    fn bind_doorbell(&self, index: u32, event: &EventFd, ring: &RingPlace) -> std::io::Result<()>;

    /// Ends what [`Self::bind_doorbell`] began.
    fn unbind_doorbell(&self, index: u32, event: &EventFd);

    /// Makes the interrupt of a client pending (register `InterruptStatus`), and tells the guest if it wants to know.
    fn raise(&self, client: Client);
}
