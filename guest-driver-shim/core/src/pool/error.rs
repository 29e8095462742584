//! Why a pool did not do what it was asked.

use super::Piece;
use crate::error::{AllocateError, FreeError, SubmitError};

/// Why a pool did not allocate a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No bytes, more than an address can count, or an alignment that is no power of two.
    #[error(
        "cannot allocate {bytes} bytes aligned to {alignment}: at least 1 byte, and an alignment \
         that is a power of two"
    )]
    Layout {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        alignment: u64,
    },
    /// The storage has no block left for another piece.
    #[error("all {capacity} blocks of the pool are in use: free pieces or give it more blocks")]
    Blocks {
        /// Blocks it has.
        capacity: usize,
    },
    /// The storage has no room for another chunk.
    #[error("all {capacity} chunks of the pool are in use: use larger chunks or give it more")]
    Chunks {
        /// Chunks it has room for.
        capacity: usize,
    },
    /// The device has no more memory for the pool.
    #[error("the pool cannot grow: {0}")]
    Refused(AllocateError),
    /// The packet that clears the piece could not be submitted.
    #[error("the piece cannot be cleared: {0}")]
    NotCleared(SubmitError),
}

/// Why a pool did not free a piece.
#[derive(Debug, thiserror::Error)]
pub enum PoolFreeError {
    /// The piece, which is from another pool.
    #[error("the piece at {:#x} is from another pool: free it there", .0.address())]
    Foreign(Piece),
    /// The piece is free, but the device did not take back memory that the pool does not need any
    /// more.
    #[error("the pool cannot shrink: {0}")]
    Refused(FreeError),
}
