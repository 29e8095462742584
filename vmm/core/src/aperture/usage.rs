//! How much of an aperture is used, for those who watch: no lock is taken to know it.

use std::sync::atomic::{AtomicU64, Ordering};

/// What placements take at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApertureUse {
    /// Size of the aperture in bytes.
    pub bytes: u64,
    /// Bytes that are placed.
    pub used_bytes: u64,
    /// Placements.
    pub placements: u64,
}

/// Counts of what is placed. To be changed with the placements locked.
#[derive(Debug, Default)]
pub struct Usage {
    bytes: AtomicU64,
    placements: AtomicU64,
}

impl Usage {
    /// Something was placed.
    pub fn placed(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.placements.fetch_add(1, Ordering::Relaxed);
    }

    /// Something was removed that was placed before.
    pub fn removed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.placements.fetch_sub(1, Ordering::Relaxed);
    }

    /// What is used of an aperture of `bytes` bytes.
    pub fn of(&self, bytes: u64) -> ApertureUse {
        ApertureUse {
            bytes,
            used_bytes: self.bytes.load(Ordering::Relaxed),
            placements: self.placements.load(Ordering::Relaxed),
        }
    }
}
