//! Counters of a device and of a container, for reports.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a device: numbers, or in the device itself what counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatistics<T = u64> {
    /// Reads of regions through the kernel.
    pub reads: T,
    /// Writes of regions through the kernel.
    pub writes: T,
    /// Accesses that were refused or failed.
    pub refused: T,
    /// Interrupt vectors that were connected to an event.
    pub vectors: T,
    /// Resets.
    pub resets: T,
    /// Bytes of regions that were ever mapped.
    pub mapped_bytes: T,
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

pub(crate) type Counters = DeviceStatistics<AtomicU64>;

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
