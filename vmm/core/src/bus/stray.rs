//! Counters of stray accesses: those that hit no device, or that the device refused.

use parking_lot::Mutex;

use super::Refusal;

/// Stray accesses that are logged as warnings. Later ones are logged as debug, since a guest makes
/// them at will.
const WARNINGS_MAX: u64 = 8;

/// Whether an access is a load or a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Load,
    Store,
}

/// Counters of the stray accesses of one guest. The first few stray accesses are also logged as
/// warnings.
#[derive(Debug, Default)]
pub struct StrayCounters {
    counts: Mutex<StrayCounts>,
    /// Stray accesses are logged as debug only.
    unreported: bool,
}

/// Numbers of stray accesses of one guest so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StrayCounts {
    /// Number of loads from addresses of the aperture at which nothing is mapped.
    pub hole_reads: u64,
    /// Number of stores to addresses of the aperture at which nothing is mapped.
    pub hole_writes: u64,
    /// Number of stores to read-only mappings in the aperture.
    pub refused_writes: u64,
    /// Number of accesses that a device refused: wrong offset, width or alignment, a store to a
    /// read-only register, or a doorbell that is not bound.
    pub registers: u64,
    /// Number of accesses to addresses that no device has.
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
    /// Returns counters that log no warnings. They are for a bus on which stray accesses are
    /// normal, such as that of the I/O ports, which Linux probes for devices.
    pub fn unreported() -> Self {
        Self {
            unreported: true,
            ..Self::default()
        }
    }

    /// Returns the current values of all counters.
    pub fn counts(&self) -> StrayCounts {
        *self.counts.lock()
    }

    /// Returns the number of stray accesses so far, of all kinds.
    pub fn total(&self) -> u64 {
        self.counts().total()
    }

    /// Counts an access of `bytes` bytes that `device` refused because of `refusal`, and logs it.
    pub(super) fn count(
        &self,
        direction: Direction,
        address: u64,
        bytes: usize,
        device: &str,
        refusal: Refusal,
    ) {
        let mut guard = self.counts.lock();
        let counts = &mut *guard;
        let (what, holes) = match direction {
            Direction::Load => ("load", &mut counts.hole_reads),
            Direction::Store => ("store", &mut counts.hole_writes),
        };
        let counter = match refusal {
            Refusal::Hole => holes,
            Refusal::WriteForbidden => &mut counts.refused_writes,
            Refusal::Unclaimed => &mut counts.unclaimed,
            Refusal::CrossesEdge
            | Refusal::NoRegister
            | Refusal::BadSize
            | Refusal::Misaligned
            | Refusal::ReadOnly
            | Refusal::UnboundDoorbell
            | Refusal::Device => &mut counts.registers,
        };
        *counter += 1;
        let total = counts.total();
        drop(guard);
        let (level, more) = match total {
            _ if self.unreported => (log::Level::Debug, ""),
            ..WARNINGS_MAX => (log::Level::Warn, ""),
            WARNINGS_MAX => (log::Level::Warn, " (later ones are logged at level debug)"),
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
        for (direction, refusal) in [
            (Direction::Load, Refusal::Hole),
            (Direction::Store, Refusal::Hole),
            (Direction::Store, Refusal::Hole),
            (Direction::Store, Refusal::WriteForbidden),
            (Direction::Load, Refusal::BadSize),
            (Direction::Store, Refusal::ReadOnly),
            (Direction::Load, Refusal::Unclaimed),
        ] {
            strays.count(direction, 0, 4, "device", refusal);
        }
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
