//! Counters of accesses that hit nothing, or that what they hit refused.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Refusal;

/// Strays that are logged as warnings; those behind them are for debugging only, since a guest
/// makes them at will.
const WARNINGS_MAX: u64 = 8;

/// Stray accesses of one guest. They saturate at 2^64 by nature of the time it would take.
#[derive(Debug, Default)]
pub struct StrayCounters {
    hole_reads: AtomicU64,
    hole_writes: AtomicU64,
    refused_writes: AtomicU64,
    registers: AtomicU64,
    unclaimed: AtomicU64,
    /// Whether all are for debugging only.
    unreported: bool,
}

/// Stray accesses so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StrayCounts {
    /// Loads from the aperture where nothing is placed.
    pub hole_reads: u64,
    /// Stores to the aperture where nothing is placed.
    pub hole_writes: u64,
    /// Stores to a read-only placement.
    pub refused_writes: u64,
    /// Accesses that a device's registers do not have: width, alignment, direction, offset.
    pub registers: u64,
    /// Accesses to addresses that no device claims.
    pub unclaimed: u64,
}

impl StrayCounts {
    /// Returns the sum of all counters.
    pub fn total(&self) -> u64 {
        let counts = [
            self.hole_reads,
            self.hole_writes,
            self.refused_writes,
            self.registers,
            self.unclaimed,
        ];
        counts.into_iter().fold(0, u64::saturating_add)
    }
}

impl StrayCounters {
    /// Returns counters of accesses that are normal: they are never logged as warnings.
    pub fn unreported() -> Self {
        Self {
            unreported: true,
            ..Self::default()
        }
    }

    /// Counts a load.
    pub fn read(&self, address: u64, bytes: usize, device: &str, refusal: Refusal) {
        self.count("load", address, bytes, device, refusal, &self.hole_reads);
    }

    /// Counts a store.
    pub fn write(&self, address: u64, bytes: usize, device: &str, refusal: Refusal) {
        self.count("store", address, bytes, device, refusal, &self.hole_writes);
    }

    /// Returns all counters.
    pub fn counts(&self) -> StrayCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StrayCounts {
            hole_reads: load(&self.hole_reads),
            hole_writes: load(&self.hole_writes),
            refused_writes: load(&self.refused_writes),
            registers: load(&self.registers),
            unclaimed: load(&self.unclaimed),
        }
    }

    /// Returns the sum of all counters.
    pub fn total(&self) -> u64 {
        self.counts().total()
    }

    fn count(
        &self,
        what: &str,
        address: u64,
        bytes: usize,
        device: &str,
        refusal: Refusal,
        hole: &AtomicU64,
    ) {
        let counter = match refusal {
            Refusal::Hole => hole,
            Refusal::WriteForbidden => &self.refused_writes,
            Refusal::Unclaimed => &self.unclaimed,
            Refusal::CrossesEdge
            | Refusal::NoRegister
            | Refusal::BadSize
            | Refusal::Misaligned
            | Refusal::ReadOnly
            | Refusal::UnboundDoorbell
            | Refusal::Device => &self.registers,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let (level, more) = match self.total() {
            _ if self.unreported => (log::Level::Debug, ""),
            ..WARNINGS_MAX => (log::Level::Warn, ""),
            WARNINGS_MAX => (log::Level::Warn, " (further ones are logged as debug)"),
            _ => (log::Level::Debug, ""),
        };
        log::log!(
            level,
            "stray {bytes}-byte {what} at {address:#x} ({device}): {refusal}{more}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_stray_has_its_counter() {
        let strays = StrayCounters::default();
        strays.read(0, 4, "aperture", Refusal::Hole);
        strays.write(0, 4, "aperture", Refusal::Hole);
        strays.write(0, 4, "aperture", Refusal::Hole);
        strays.write(0, 4, "aperture", Refusal::WriteForbidden);
        strays.read(0, 4, "registers", Refusal::BadSize);
        strays.write(0, 4, "registers", Refusal::ReadOnly);
        strays.read(0, 4, "unclaimed", Refusal::Unclaimed);
        let wanted = StrayCounts {
            hole_reads: 1,
            hole_writes: 2,
            refused_writes: 1,
            registers: 2,
            unclaimed: 1,
        };
        assert_eq!(strays.counts(), wanted);
        assert_eq!(strays.total(), 7);
    }
}
