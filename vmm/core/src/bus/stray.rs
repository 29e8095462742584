//! Counters of stray accesses: those that hit no device, or that the device refused.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Refusal;

/// Stray accesses that are logged as warnings. Later ones are logged as debug, since a guest makes
/// them at will.
const WARNINGS_MAX: u64 = 8;

/// Counts the stray accesses of one guest, and logs the first few as warnings.
#[derive(Debug, Default)]
pub struct StrayCounters {
    hole_reads: AtomicU64,
    hole_writes: AtomicU64,
    refused_writes: AtomicU64,
    registers: AtomicU64,
    unclaimed: AtomicU64,
    /// Stray accesses are logged as debug only.
    unreported: bool,
}

/// Numbers of stray accesses of one guest so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StrayCounts {
    /// Loads from addresses of the aperture at which nothing is mapped.
    pub hole_reads: u64,
    /// Stores to addresses of the aperture at which nothing is mapped.
    pub hole_writes: u64,
    /// Stores to read-only mappings in the aperture.
    pub refused_writes: u64,
    /// Accesses to a device that it refused: wrong offset, width or alignment, a store to a
    /// read-only register, or a doorbell that is not bound.
    pub registers: u64,
    /// Accesses to addresses that no device has.
    pub unclaimed: u64,
}

impl StrayCounts {
    /// Returns the number of stray accesses of all kinds.
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
    /// Returns counters for a bus on which stray accesses are normal, as when Linux probes ports:
    /// none is logged as a warning.
    pub fn unreported() -> Self {
        Self {
            unreported: true,
            ..Self::default()
        }
    }

    /// Counts a load of `bytes` bytes that `device` refused because of `refusal`, and logs it.
    pub fn read(&self, address: u64, bytes: usize, device: &str, refusal: Refusal) {
        self.count("load", address, bytes, device, refusal, &self.hole_reads);
    }

    /// Counts a store of `bytes` bytes that `device` refused because of `refusal`, and logs it.
    pub fn write(&self, address: u64, bytes: usize, device: &str, refusal: Refusal) {
        self.count("store", address, bytes, device, refusal, &self.hole_writes);
    }

    /// Returns the current values of all counters.
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

    /// Returns the number of stray accesses so far, of all kinds.
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
            WARNINGS_MAX => (log::Level::Warn, " (later ones are logged as debug)"),
            _ => (log::Level::Debug, ""),
        };
        log::log!(
            level,
            "stray access, a {bytes}-byte {what} at {address:#x} ({device}): {refusal}{more}"
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
