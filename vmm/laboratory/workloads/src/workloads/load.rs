//! Loads of words, as a program does that has a pointer.

use super::{Cell, Description, Workload, within_exits};
use crate::{Mechanism, MechanismKind};

use causeway_kernels::loops;

/// The region, in bytes.
const REGION_BYTES: usize = 64 << 10;
const REGION_WORDS: usize = REGION_BYTES / 8;

pub(super) const DESCRIPTION: Description = Description {
    name: "load",
    what: "a load of 8 bytes from memory",
    unit: "B",
    is_data: true,
    launches: false,
    sizes: |_| &[REGION_BYTES as u64],
    operations: |mechanism, effort, _| match mechanism {
        MechanismKind::Mediated | MechanismKind::Native => Some(512 * REGION_WORDS as u64),
        // A load from a device that is far away may take a microsecond.
        MechanismKind::Passthrough | MechanismKind::NativeBar => Some(8 * REGION_WORDS as u64),
        MechanismKind::Forward | MechanismKind::Trap => within_exits(effort, 512, 1),
    },
};

/// Loads from a region of memory.
pub struct Load<M: Mechanism> {
    memory: M::Memory,
    words: usize,
    passes: u32,
    sum: u64,
}

impl<M: Mechanism> Workload<M> for Load<M> {
    fn prepare(m: &mut M, cell: &Cell, _: &mut [u8]) -> Self {
        let (words, passes) = super::store::passes(cell.operations);
        let memory = m.allocate(REGION_BYTES);
        m.store_words(&memory, words, 1);
        Self {
            memory,
            words,
            passes,
            sum: 0,
        }
    }

    fn run(&mut self, m: &mut M, _: &Cell, _: &mut [u8]) {
        self.sum = m.load_words(&self.memory, self.words, self.passes);
    }

    fn finish(self, m: &mut M, _: &Cell, _: &mut [u8]) {
        assert_eq!(self.sum, loops::expected_sum(self.words, self.passes));
        m.free(self.memory);
    }
}
