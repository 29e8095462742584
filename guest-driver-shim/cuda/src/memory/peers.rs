//! What a device reaches of others.

use std::collections::BTreeMap;

use causeway_shim_linux::shim::{Allocation, ChunkPlace, Device, ExportToken};

/// What contexts of a device have access to, and what is mapped for that.
#[derive(Default)]
pub(super) struct Peers {
    /// Handles of a context and of one of another device whose memory it may use; twice that of a
    /// memory pool of another device, which all contexts may use.
    pub(super) enabled: Vec<(usize, usize)>,
    /// By the number of the owner's device and of the chunk.
    pub(super) mapped: BTreeMap<(usize, u64), Mapped>,
}

/// A chunk of another device. A drop ends the mapping, and the export for it.
pub(super) struct Mapped {
    pub(super) place: ChunkPlace,
    memory: Option<Allocation<'static>>,
    owner: &'static Device<'static>,
    token: ExportToken,
}

impl Mapped {
    /// Keeps what was imported and mapped, by an export of `owner`.
    pub(super) const fn new(
        place: ChunkPlace,
        memory: Allocation<'static>,
        (owner, token): (&'static Device<'static>, ExportToken),
    ) -> Self {
        Self {
            place,
            memory: Some(memory),
            owner,
            token,
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        drop(self.memory.take());
        // The export has ended with the chunk, if that is gone.
        let _ = self.owner.revoke(&self.token);
    }
}
