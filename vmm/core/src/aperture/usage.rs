//! How much of an aperture is used, for monitors: reading it takes no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The use of an aperture at one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ApertureUse {
    /// Size of the aperture in bytes.
    pub bytes: u64,
    /// Bytes that are placed.
    pub used_bytes: u64,
    /// Placements.
    pub placements: u64,
}

/// Counters of placements. Changed only while the placements are locked.
#[derive(Debug, Default)]
pub struct Usage {
    bytes: AtomicU64,
    placements: AtomicU64,
}

impl Usage {
    /// Counts a placement of `bytes` bytes.
    pub fn placed(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.placements.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the removal of a placement of `bytes` bytes.
    pub fn removed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.placements.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the use of an aperture of `bytes` bytes.
    pub fn of(&self, bytes: u64) -> ApertureUse {
        ApertureUse {
            bytes,
            used_bytes: self.bytes.load(Ordering::Relaxed),
            placements: self.placements.load(Ordering::Relaxed),
        }
    }
}
