//! Memory of a back end.

use std::any::Any;
use std::os::fd::OwnedFd;

use causeway_memory::{Backing, PageSize};
use causeway_protocol::message::{FABRIC_HANDLE_BYTES, MemoryKind, Status};

use super::BackendError;

/// A handle by which machines of an NVLink fabric name memory, as the device's driver made it.
pub type FabricBytes = [u8; FABRIC_HANDLE_BYTES];

/// Memory of an allocation, of an import or of registered guest RAM. The memory is freed when no
/// handle, mapping, running work or other session holds it any more.
///
/// The session's quota is charged for the memory until the last `Arc<dyn Memory>` that its users
/// hold is dropped. So users must keep that `Arc`; a reference to the back end's own type, which
/// [`Self::as_any`] gives, does not count.
pub trait Memory: Send + Sync + Any {
    /// Returns the size of the memory in bytes.
    fn bytes(&self) -> u64;

    /// Returns the memory in the form in which a VMM can place it in an aperture; `None` if CPUs
    /// cannot access this memory.
    fn backing(&self) -> Option<Backing>;

    /// Returns where the memory is, as the session sees it that has it. The default suits memory
    /// of the session's own GPU.
    fn place(&self) -> Place {
        Place::Own
    }

    /// Returns a descriptor of this memory, with its kind, size and place, by which another process
    /// can import the memory ([`Backend::import`](super::Backend::import)).
    ///
    /// # Errors
    /// `Unsupported` if this memory cannot be shared, `NoMemory` if the process has no free file
    /// descriptor left, `BackEnd` if the driver fails.
    fn export(&self) -> Result<Exported, BackendError>;

    /// Returns the handle by which all machines of the fabric can import the memory, until it is
    /// freed; the same each time. The default implementation suits back ends without such handles.
    ///
    /// # Errors
    /// `BadMemory` if the memory was not allocated with [`AllocateOptions::fabric`], `Unsupported`
    /// if the device has no such handles, `BackEnd` if the driver fails.
    fn fabric_handle(&self) -> Result<FabricBytes, BackendError> {
        Err(no_fabric())
    }

    /// Returns `self` as [`Any`], so that the back end can downcast it to its own type.
    fn as_any(&self) -> &dyn Any;
}

/// Where memory is, as a session on one of the GPUs of a run sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the host's memory, which kernels and copies of every GPU reach.
    Host,
    /// On the session's own GPU.
    #[default]
    Own,
    /// On another GPU, a peer: kernels and copies reach it.
    Peer,
    /// On a GPU that cannot be a peer. Only copies reach it, through the host's memory, and only
    /// from and to memory of the session's own GPU.
    Apart {
        /// Number of that GPU in the run.
        gpu: u32,
    },
}

/// Options of an allocation that a guest chooses in addition to its kind and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// Whether the device may store the memory compressed. Can be true only if the back end has
    /// `features::COMPRESSION`.
    pub compressible: bool,
    /// Whether the memory can have a fabric handle ([`Memory::fabric_handle`]). Can be true only if
    /// the back end has `features::FABRIC_EXPORT`.
    pub fabric: bool,
}

/// Returns the error of a back end whose memory has no fabric handles.
pub(super) fn no_fabric() -> BackendError {
    BackendError::new(
        Status::Unsupported,
        "memory of this back end has no fabric handles",
    )
}

/// Memory that one process exports and another one imports: a file descriptor, and a description of
/// the memory behind it.
#[derive(Debug)]
pub struct Exported {
    /// Kind of the memory behind the descriptor.
    pub kind: MemoryKind,
    /// Size of the memory in bytes.
    pub bytes: u64,
    /// The file descriptor. It belongs to a memory object if `kind` is [`MemoryKind::Host`];
    /// otherwise the device's driver created it.
    pub file: OwnedFd,
    /// Offset in bytes at which the memory begins in the memory object; 0 for memory of a device.
    pub offset: u64,
    /// Page size of the memory object; ignored for memory of a device.
    pub pages: PageSize,
    /// Where the memory is, as the importer sees it; [`Place::Own`] where it is exported.
    pub place: Place,
}
