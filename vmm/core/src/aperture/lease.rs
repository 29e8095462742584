//! Use of placed memory by other means than the aperture, and its end.

use std::sync::{Arc, PoisonError, RwLock};

use causeway_memory::SharedMemory;
use causeway_protocol::Access;

/// The right to use memory on a guest's behalf, as long as the guest itself may.
///
/// Whoever takes the right away waits for uses under way, so these are to be short.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    ended: Arc<RwLock<bool>>,
}

impl Lease {
    /// Does `work`, unless the lease has ended. It does not end before `work` returns.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        (!*ended).then(work)
    }

    /// Ends it. When this returns nobody uses the memory, nor will.
    pub(super) fn end(&self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Memory that a guest has mapped.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The object.
    pub memory: Arc<SharedMemory>,
    /// Offset in it.
    pub offset: u64,
    /// Rights that the guest has there.
    pub access: Access,
    /// How long this holds.
    pub lease: Lease,
}
