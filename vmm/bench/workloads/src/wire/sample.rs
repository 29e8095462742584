//! A sample that a guest hands over, or that it asks the host to take.

use crate::{Cell, MechanismKind, WorkloadKind};

/// 64-bit words of a sample: workload, mechanism, size, operations, repetition, nanoseconds.
pub const WORDS: usize = 6;

/// One sample. If it is [native](MechanismKind::is_native), the host takes it, and the time in it
/// means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The cell that was measured.
    pub cell: Cell,
    /// Which repetition, from 0, or [`WARM_UP`].
    pub repetition: u64,
    /// How long all operations took together, in nanoseconds.
    pub ns: u64,
}

/// The repetition of a sample that is taken, and not kept.
pub const WARM_UP: u64 = u64::MAX;

impl Sample {
    /// Makes the host take a sample that is not kept.
    #[must_use]
    pub const fn warming_up(cell: Cell) -> Self {
        Self {
            cell,
            repetition: WARM_UP,
            ns: 0,
        }
    }

    /// Returns the sample as words in memory.
    #[must_use]
    pub const fn words(&self) -> [u64; WORDS] {
        [
            self.cell.workload as u64,
            self.cell.mechanism as u64,
            self.cell.size,
            self.cell.operations,
            self.repetition,
            self.ns,
        ]
    }

    /// Reads it; none if there is no such workload or mechanism.
    #[must_use]
    pub fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let [workload, mechanism, size, operations, repetition, ns] = words;
        Some(Self {
            cell: Cell {
                workload: WorkloadKind::from_wire(workload)?,
                mechanism: MechanismKind::from_wire(mechanism)?,
                size,
                operations,
            },
            repetition,
            ns,
        })
    }
}
