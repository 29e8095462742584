//! Why a pool did not do what it was asked.

use core::fmt;

use super::Piece;
use crate::error::{AllocateError, FreeError, SubmitError};

/// Why there is no piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// No bytes, more than an address can count, or an alignment that is no power of two.
    Layout {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        alignment: u64,
    },
    /// The storage has no block left for another piece.
    Blocks {
        /// Blocks it has.
        capacity: usize,
    },
    /// The storage has no room for another chunk.
    Chunks {
        /// Chunks it has room for.
        capacity: usize,
    },
    /// The device has no more memory for the pool.
    Refused(AllocateError),
    /// The packet that clears the piece could not be submitted.
    NotCleared(SubmitError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout { bytes, alignment } => write!(
                f,
                "{bytes} bytes at a multiple of {alignment} cannot be allocated: ask for one byte or more, aligned to a power of two"
            ),
            Self::Blocks { capacity } => write!(
                f,
                "the pool's storage of {capacity} blocks is used up: free pieces or give it more blocks"
            ),
            Self::Chunks { capacity } => write!(
                f,
                "the pool's storage has no room for more than {capacity} chunks: use larger chunks or give it more"
            ),
            Self::Refused(error) => write!(f, "the pool cannot grow: {error}"),
            Self::NotCleared(error) => write!(f, "the piece cannot be cleared: {error}"),
        }
    }
}

impl core::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::NotCleared(error) => Some(error),
            Self::Layout { .. } | Self::Blocks { .. } | Self::Chunks { .. } => None,
        }
    }
}

/// Why a piece was not taken back.
#[derive(Debug)]
pub enum PoolFreeError {
    /// It is not from this pool. Here it is.
    Foreign(Piece),
    /// The piece is free, but the device did not take memory back that the pool has no more use for.
    Refused(FreeError),
}

impl fmt::Display for PoolFreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(piece) => {
                let address = piece.address();
                write!(
                    f,
                    "the piece at {address:#x} is from another pool: free it there"
                )
            }
            Self::Refused(error) => write!(f, "the pool cannot shrink: {error}"),
        }
    }
}

impl core::error::Error for PoolFreeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Foreign(_) => None,
            Self::Refused(error) => Some(error),
        }
    }
}
