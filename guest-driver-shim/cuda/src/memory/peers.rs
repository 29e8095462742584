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

/// A chunk of another device. A drop ends the mapping.
pub(super) struct Mapped {
    pub(super) place: ChunkPlace,
    _memory: Allocation<'static>,
}

impl Mapped {
    /// Keeps what was imported and mapped.
    pub(super) const fn new(place: ChunkPlace, memory: Allocation<'static>) -> Self {
        Self {
            place,
            _memory: memory,
        }
    }
}
