//! Counters of a device and of a container, for reports.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatistics {
    /// Reads of regions through the kernel.
    pub reads: u64,
    /// Writes of regions through the kernel.
    pub writes: u64,
    /// Accesses that were refused or failed.
    pub refused: u64,
    /// Interrupt vectors that were connected to an event.
    pub vectors: u64,
    /// Resets.
    pub resets: u64,
    /// Bytes of regions that were ever mapped.
    pub mapped_bytes: u64,
}

/// Counters of the memory of the host that devices can access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaStatistics {
    /// Mappings now.
    pub mappings: u64,
    /// Bytes mapped now.
    pub bytes: u64,
    /// Mappings that were ever made.
    pub made: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) vectors: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) mapped_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn sample(&self) -> DeviceStatistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceStatistics {
            reads: of(&self.reads),
            writes: of(&self.writes),
            refused: of(&self.refused),
            vectors: of(&self.vectors),
            resets: of(&self.resets),
            mapped_bytes: of(&self.mapped_bytes),
        }
    }
}
