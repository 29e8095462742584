//! Use of placed memory by other means than the aperture, and its end.

use std::sync::Arc;

use causeway_memory::SharedMemory;
use causeway_protocol::Access;
use parking_lot::RwLock;

/// The right to use memory on a guest's behalf, as long as the guest itself may.
/// Taking the right away waits for uses under way, so a use must be short.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    ended: Arc<RwLock<bool>>,
}

impl Lease {
    /// Does `work`, unless the lease has ended. The lease does not end before `work` returns.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let ended = self.ended.read();
        (!*ended).then(work)
    }

    /// Ends the lease. When this returns, no use is under way, and none begins.
    pub(super) fn end(&self) {
        *self.ended.write() = true;
    }
}

/// Memory that a guest has mapped.
#[derive(Clone, Debug)]
pub struct LeasedMemory {
    /// The object.
    pub memory: Arc<SharedMemory>,
    /// Offset in it.
    pub offset: u64,
    /// The guest's access rights.
    pub access: Access,
    /// The lease on the memory: it ends with the mapping.
    pub lease: Lease,
}
