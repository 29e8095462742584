//! How much of an aperture is used, for monitors: reading it takes no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// How much of an aperture was used at the moment when this value was made.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApertureUse {
    /// Size of the aperture in bytes.
    pub bytes: u64,
    /// Total size in bytes of the allocations that are placed in the aperture.
    pub used_bytes: u64,
    /// Number of allocations that are placed in the aperture.
    pub placements: u64,
}

/// Counters of the allocations that are placed in one aperture, and of their bytes. Any thread may
/// read them without a lock.
#[derive(Debug, Default)]
pub struct Usage {
    bytes: AtomicU64,
    placements: AtomicU64,
}

impl Usage {
    /// Adds an allocation of `bytes` bytes, which was placed in the aperture, to the counters.
    pub fn placed(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.placements.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts an allocation of `bytes` bytes, which was removed from the aperture, from the
    /// counters.
    pub fn removed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.placements.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the values of the counters, for an aperture whose size is `bytes` bytes.
    pub fn of(&self, bytes: u64) -> ApertureUse {
        ApertureUse {
            bytes,
            used_bytes: self.bytes.load(Ordering::Relaxed),
            placements: self.placements.load(Ordering::Relaxed),
        }
    }
}
