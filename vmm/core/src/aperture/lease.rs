//! Use of placed memory by other means than the aperture, and its end.

use std::sync::Arc;

use causeway_memory::SharedMemory;
use causeway_protocol::Access;
use parking_lot::RwLock;

/// The right of a host thread to use memory that a guest has mapped. The lease ends when the
/// guest's mapping is removed or its access rights change. Ending the lease waits for uses under
/// way, so each use must be short.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    ended: Arc<RwLock<bool>>,
}

impl Lease {
    /// Calls `work` while the lease is kept from ending, and returns its result. Returns `None`
    /// without calling `work` if the lease has ended already.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let ended = self.ended.read();
        (!*ended).then(work)
    }

    /// Ends the lease. When this returns, no use is under way, and no further use begins.
    pub(super) fn end(&self) {
        *self.ended.write() = true;
    }
}

/// A range of memory that a guest has mapped in its aperture, and the lease by which a host thread
/// may use it.
#[derive(Clone, Debug)]
pub struct LeasedMemory {
    /// The memory object that contains the range.
    pub memory: Arc<SharedMemory>,
    /// Offset of the range in the memory object, in bytes.
    pub offset: u64,
    /// The guest's access rights to the range.
    pub access: Access,
    /// The host thread's right to use the range: it ends when the guest's mapping is removed or its
    /// access rights change.
    pub lease: Lease,
}
