//! Samples: times that a guest sends to the host, or asks the host to measure.

use crate::{Cell, MechanismKind, WorkloadKind};

/// Size of a sample in 64-bit words: workload, mechanism, size, operations, repetition,
/// nanoseconds.
pub const WORDS: usize = 6;

/// A measured time that a guest sends to the host. If the mechanism is
/// [native](MechanismKind::is_native), the guest instead asks the host to measure, and the time has
/// no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The cell that is measured.
    pub cell: Cell,
    /// Number of the repetition, from 0, or [`WARM_UP`].
    pub repetition: u64,
    /// Time of all operations together, in nanoseconds.
    pub ns: u64,
}

/// Value of [`Sample::repetition`] for a sample that warms up caches and is not kept.
pub const WARM_UP: u64 = u64::MAX;

impl Sample {
    /// Returns a sample that asks the host to measure a cell once and not to keep the time.
    #[must_use]
    pub const fn warming_up(cell: Cell) -> Self {
        Self {
            cell,
            repetition: WARM_UP,
            ns: 0,
        }
    }

    /// Returns the sample as the words that a guest writes to memory.
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

    /// Returns the sample that a guest has written as `words`, or `None` if the workload or
    /// mechanism does not exist.
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
