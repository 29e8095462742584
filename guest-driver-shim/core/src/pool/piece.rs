//! Pieces of a pool.

use crate::window::Window;

/// A piece of a pool's memory. It cannot be copied, so it cannot be freed twice. Dropping a piece
/// does not free it: it stays allocated until its pool is dropped.
#[derive(Debug)]
#[must_use = "a piece that is dropped stays allocated: free it"]
pub struct Piece {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) window: Option<Window>,
    pub(super) origin: Origin,
}

/// Where a piece is from: number of the chunk and, if the chunk has others, of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub chunk: u32,
    pub block: Option<u32>,
}

impl Piece {
    /// Returns the first GPU virtual address of the piece.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size in bytes: the requested size, rounded up to
    /// [`GRANULE_BYTES`](super::GRANULE_BYTES).
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a window over the piece's memory, for accesses by the CPU. Returns `None` for a
    /// piece of kind `MemoryKind::Device`, which the CPU cannot access.
    #[must_use]
    pub const fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }
}
