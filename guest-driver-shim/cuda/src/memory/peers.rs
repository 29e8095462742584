//! What a device reaches of others.

use std::collections::BTreeMap;

use causeway_shim_linux::shim::{Allocation, ChunkPlace};

/// What contexts of a device have access to, and what is mapped for that.
#[derive(Default)]
pub(super) struct Peers {
    /// Handles of a context and of one of another device whose memory it may use; twice that of a
    /// memory pool of another device, which all contexts may use.
    pub(super) enabled: Vec<(usize, usize)>,
    /// By the number of the owner's device and of the chunk.
    pub(super) mapped: BTreeMap<(usize, u64), Mapped>,
}

/// A chunk of another device. A drop ends the mapping, and then its export.
pub(super) struct Mapped {
    pub(super) place: ChunkPlace,
    memory: Option<Allocation<'static>>,
    end_export: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// Exports whose mappings have ended. Each call ends one if no work can use it any more, and tells
/// whether it has.
pub(super) type EndedExports = Vec<Box<dyn FnMut() -> bool + Send>>;

impl Mapped {
    /// Keeps what was imported and mapped. `end_export` is called when that has ended.
    pub(super) fn new(
        place: ChunkPlace,
        memory: Allocation<'static>,
        end_export: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Self {
            place,
            memory: Some(memory),
            end_export: Some(Box::new(end_export)),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        drop(self.memory.take());
        if let Some(end_export) = self.end_export.take() {
            end_export();
        }
    }
}
