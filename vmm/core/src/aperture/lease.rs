//! Use of placed memory by other means than the aperture, and its end.

use std::sync::Arc;

use causeway_memory::SharedMemory;
use causeway_protocol::Access;
use parking_lot::RwLock;

/// A host thread's right to use guest-mapped memory, which ends when the guest loses its own. The
/// end waits for uses under way, so each use must be short.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    ended: Arc<RwLock<bool>>,
}

impl Lease {
    /// Calls `work` and returns its result; returns `None` without a call if the lease has ended.
    /// The lease does not end before `work` returns.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let ended = self.ended.read();
        (!*ended).then(work)
    }

    /// Ends the lease. When this returns, no use is under way, and no further use begins.
    pub(super) fn end(&self) {
        *self.ended.write() = true;
    }
}

/// Memory that a guest has mapped, which a host thread may use while the lease lasts.
#[derive(Clone, Debug)]
pub struct LeasedMemory {
    /// The memory object that contains the mapped memory.
    pub memory: Arc<SharedMemory>,
    /// Offset of the mapped memory in the object, in bytes.
    pub offset: u64,
    /// Access rights that the guest has to the memory.
    pub access: Access,
    /// The right to use the memory: it ends when the guest's mapping or rights end.
    pub lease: Lease,
}
