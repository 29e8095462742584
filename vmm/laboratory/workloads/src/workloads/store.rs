//! Stores of words, as a program does that has a pointer.

use super::{Cell, Description, Workload, within_exits};
use crate::{Mechanism, MechanismKind};

/// The region, in bytes.
const REGION_BYTES: usize = 64 << 10;
const REGION_WORDS: usize = REGION_BYTES / 8;

pub(super) const DESCRIPTION: Description = Description {
    name: "store",
    what: "a store of 8 bytes to memory",
    unit: "B",
    is_data: true,
    launches: false,
    sizes: |_| &[REGION_BYTES as u64],
    operations: |mechanism, effort, _| match mechanism {
        MechanismKind::Mediated | MechanismKind::Native => Some(512 * REGION_WORDS as u64),
        // As many as loads.
        MechanismKind::Passthrough | MechanismKind::NativeBar => Some(8 * REGION_WORDS as u64),
        // Sent many at a time: a pass over the region.
        MechanismKind::Forward => Some(REGION_WORDS as u64),
        MechanismKind::Trap => within_exits(effort, 512, 1),
    },
};

/// Stores to a region of memory.
pub struct Store<M: Mechanism> {
    memory: M::Memory,
    words: usize,
    passes: u32,
}

impl<M: Mechanism> Workload<M> for Store<M> {
    fn prepare(m: &mut M, cell: &Cell, _: &mut [u8]) -> Self {
        let (words, passes) = passes(cell.operations);
        let memory = m.allocate(REGION_BYTES);
        // The first touch.
        m.store_words(&memory, words, 1);
        Self {
            memory,
            words,
            passes,
        }
    }

    fn run(&mut self, m: &mut M, _: &Cell, _: &mut [u8]) {
        m.store_words(&self.memory, self.words, self.passes);
        // Stores that are sent many at a time have not arrived before this.
        m.synchronize();
    }

    fn finish(self, m: &mut M, _: &Cell, _: &mut [u8]) {
        let mut last = [0; 8];
        m.copy_out(&self.memory, 8 * (self.words - 1), &mut last);
        assert_eq!(u64::from_le_bytes(last), self.words as u64 / 8);
        m.free(self.memory);
    }
}

/// Words of a pass and passes, of so many operations.
pub(super) fn passes(operations: u64) -> (usize, u32) {
    let words = (operations as usize).min(REGION_WORDS);
    (words, (operations as usize / words) as u32)
}
