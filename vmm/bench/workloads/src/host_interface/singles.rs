//! Times of single operations that a guest sends to the host, or asks the host to take.

use crate::singles::SINGLES_MAX;
use crate::{Cell, MechanismKind, WorkloadKind};

/// Size of a record in 64-bit words: workload, mechanism, size, operations, count, cost of the
/// timer, address.
pub const WORDS: usize = 7;

/// Times of single operations of a cell. If the mechanism of the cell is
/// [native](MechanismKind::is_native), the guest asks the host to take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Singles {
    /// The cell: a workload at one size by one mechanism.
    pub cell: Cell,
    /// Number of operations that were timed, at most [`SINGLES_MAX`]; 0 if too few fit into the
    /// time that they may take.
    pub count: usize,
    /// What the timer adds to each time, in nanoseconds.
    pub timer_ns: u64,
    /// Guest-physical address of the times: a 64-bit number of nanoseconds for each operation.
    pub address: u64,
}

impl Singles {
    /// Returns the record that asks the host to time single operations of `cell`.
    #[must_use]
    pub const fn ask(cell: Cell) -> Self {
        Self {
            cell,
            count: 0,
            timer_ns: 0,
            address: 0,
        }
    }

    /// Returns the record as 64-bit words, which a guest writes to its RAM for the host.
    #[must_use]
    pub const fn words(&self) -> [u64; WORDS] {
        [
            self.cell.workload as u64,
            self.cell.mechanism as u64,
            self.cell.size,
            self.cell.operations,
            self.count as u64,
            self.timer_ns,
            self.address,
        ]
    }

    /// Returns the record that a guest has written as `words`, or `None` if the workload or
    /// mechanism does not exist, or the count is too large.
    #[must_use]
    pub fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let [
            workload,
            mechanism,
            size,
            operations,
            count,
            timer_ns,
            address,
        ] = words;
        let count = usize::try_from(count).ok();
        Some(Self {
            cell: Cell {
                workload: WorkloadKind::from_wire(workload)?,
                mechanism: MechanismKind::from_wire(mechanism)?,
                size,
                operations,
            },
            count: count.filter(|count| *count <= SINGLES_MAX)?,
            timer_ns,
            address,
        })
    }
}
