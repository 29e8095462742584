//! Why a pool did not do what it was asked.

use super::Piece;
use crate::error::{AllocateError, FreeError};

/// Why a pool did not allocate a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The size is zero or too large, or the alignment is not a power of two.
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
    /// All records for pieces in the pool's storage are in use.
    #[error("all {capacity} blocks of the pool are in use: free pieces or give it more blocks")]
    Blocks {
        /// Number of records for pieces (`BLOCKS`) in the storage.
        capacity: usize,
    },
    /// All records for chunks in the pool's storage are in use.
    #[error("all {capacity} chunks of the pool are in use: give it more, or larger chunks")]
    Chunks {
        /// Number of records for chunks (`CHUNKS`) in the storage.
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
    /// The piece is freed, but the device refused to free memory that the pool no longer needs.
    #[error("the pool cannot return memory to the device: {0}")]
    Refused(FreeError),
}
