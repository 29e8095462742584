//! Why a pool did not do what it was asked.

use super::Piece;
use crate::error::{AllocateError, FreeError};

/// Why a pool did not allocate a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The size is zero or too large, or the alignment is no power of two.
    #[error(
        "cannot allocate {bytes} bytes aligned to {alignment}: ask for at least 1 byte and an \
         alignment that is a power of two"
    )]
    Layout {
        /// Size of the piece in bytes.
        bytes: u64,
        /// Alignment of the piece in bytes.
        alignment: u64,
    },
    /// All blocks of the storage are in use.
    #[error("all {capacity} blocks of the pool are in use: free pieces or give it more blocks")]
    Blocks {
        /// Number of blocks of the storage.
        capacity: usize,
    },
    /// All entries for chunks of the storage are in use.
    #[error("all {capacity} chunks of the pool are in use: give it more, or larger chunks")]
    Chunks {
        /// Number of chunks that the storage has room for.
        capacity: usize,
    },
    /// The device refused to allocate another chunk.
    #[error("the pool cannot allocate another chunk: {0}")]
    Refused(AllocateError),
}

/// Why a pool did not free a piece.
#[derive(Debug, thiserror::Error)]
pub enum PoolFreeError {
    /// The piece is from another pool. It is returned to the caller.
    #[error("the piece at {:#x} is from another pool: free it there", .0.address())]
    Foreign(Piece),
    /// The piece is freed, but the device refused to take back memory that the pool does not need
    /// any more.
    #[error("the pool cannot return memory to the device: {0}")]
    Refused(FreeError),
}
