//! Counters of a device and of a container, for reports.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one open device. `T` is `u64` in reports, and an atomic counter inside the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatistics<T = u64> {
    /// Number of reads of regions through the kernel; loads from mappings are not counted.
    pub reads: T,
    /// Number of writes of regions through the kernel; stores to mappings are not counted.
    pub writes: T,
    /// Number of reads and writes through the kernel that were refused or failed. [`Self::reads`]
    /// and [`Self::writes`] include them.
    pub refused: T,
    /// Number of interrupt vectors connected to an event so far; a vector that is connected twice
    /// counts twice.
    pub vectors: T,
    /// Number of successful resets.
    pub resets: T,
    /// Total size in bytes of all mappings that [`Device::map`](crate::Device::map) has made so
    /// far, including those that were dropped.
    pub mapped_bytes: T,
}

/// Counters of the host memory that the devices of a container can access by DMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaStatistics {
    /// Number of DMA mappings that exist now.
    pub mappings: u64,
    /// Total size in bytes of the DMA mappings that exist now.
    pub bytes: u64,
    /// Number of DMA mappings made so far, including those that were removed.
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
