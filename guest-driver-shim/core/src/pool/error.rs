//! Why a pool did not do what it was asked.

use super::Piece;
use crate::error::{AllocateError, FreeError};

/// Why a pool did not allocate a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The size is zero or too large, or the alignment is not a power of two.
    #[error(
        "the pool cannot allocate {bytes} bytes aligned to {alignment}: the size is 0 or too \
         large, or the alignment is not a power of two"
    )]
    Layout {
        /// Size of the piece in bytes.
        bytes: u64,
        /// Alignment of the piece in bytes.
        alignment: u64,
    },
    /// All records for pieces in the pool's storage are in use.
    #[error(
        "the pool cannot allocate more, because all {capacity} records of its `PoolStorage` \
         (`BLOCKS`) are in use: free some of the pool's memory, or create the pool in a \
         `PoolStorage` with `BLOCKS` above {capacity}"
    )]
    Blocks {
        /// Number of records for pieces (`BLOCKS`) in the storage.
        capacity: usize,
    },
    /// All records for chunks in the pool's storage are in use.
    #[error(
        "the pool has no free memory, and already has {capacity} chunks, as many as its \
         `PoolStorage` can record (`CHUNKS`): create the pool in a `PoolStorage` with `CHUNKS` \
         above {capacity}, or with larger chunks"
    )]
    Chunks {
        /// Number of records for chunks (`CHUNKS`) in the storage.
        capacity: usize,
    },
    /// The device refused to allocate another chunk.
    #[error("the pool cannot allocate another chunk of device memory: {0}")]
    Refused(AllocateError),
}

/// Why a pool did not free a piece.
#[derive(Debug, thiserror::Error)]
pub enum PoolFreeError {
    /// The piece is from another pool. It is returned to the caller.
    #[error(
        "the memory at GPU address {address:#x} is from another pool: free it in that pool",
        address = .0.address()
    )]
    Foreign(Piece),
    /// The piece is freed, but the device refused to free memory that the pool no longer needs.
    #[error("the pool freed the memory, but cannot return an unused chunk to the device: {0}")]
    Refused(FreeError),
}
