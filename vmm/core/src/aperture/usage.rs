//! How much of an aperture is used, for monitors: reading it takes no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The use of an aperture at one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ApertureUse {
    /// Size of the aperture in bytes.
    pub bytes: u64,
    /// Bytes of the allocations that are placed in the aperture.
    pub used_bytes: u64,
    /// Number of allocations that are placed in the aperture.
    pub placements: u64,
}

/// Counts the placements of one aperture and their bytes. The aperture changes the counters only
/// while it holds the lock of its placements.
#[derive(Debug, Default)]
pub struct Usage {
    bytes: AtomicU64,
    placements: AtomicU64,
}

impl Usage {
    /// Counts an allocation of `bytes` bytes that was placed in the aperture.
    pub fn placed(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.placements.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes an allocation of `bytes` bytes, which was removed from the aperture, out of the
    /// counts.
    pub fn removed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.placements.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the counts as the use of an aperture of `bytes` bytes.
    pub fn of(&self, bytes: u64) -> ApertureUse {
        ApertureUse {
            bytes,
            used_bytes: self.bytes.load(Ordering::Relaxed),
            placements: self.placements.load(Ordering::Relaxed),
        }
    }
}
