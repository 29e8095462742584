//! Loads of words, as a program does that has a pointer.

use super::store::{REGIONS, Store, WORDS_FAR, WORDS_MIN};
use super::{Cell, Description, Workload, within_exits};
use crate::singles::Single;
use crate::{Mechanism, MechanismKind};

use causeway_kernels::loops;

pub(super) const DESCRIPTION: Description = Description {
    name: "load",
    what: "a load of 8 bytes from memory",
    unit: "B",
    is_data: true,
    launches: false,
    // A word takes less time than the timer.
    single: Single::InLoop,
    sizes: |_| REGIONS,
    operations: |mechanism, effort, bytes| match mechanism {
        MechanismKind::Mediated | MechanismKind::Native => Some((bytes / 8).max(WORDS_MIN)),
        MechanismKind::Passthrough | MechanismKind::NativeBar => Some(WORDS_FAR),
        MechanismKind::Forward | MechanismKind::Trap => within_exits(effort, 512, 1),
    },
    host_bytes: |_| 0,
};

/// Loads 64-bit words from GPU memory.
pub struct Load<M: Mechanism> {
    stored: Store<M>,
    sum: u64,
}

impl<M: Mechanism> Workload<M> for Load<M> {
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self {
        let stored = Store::prepare(m, cell, host);
        Self { stored, sum: 0 }
    }

    fn run(&mut self, m: &mut M, _: &Cell, _: &mut [u8]) {
        let stored = &self.stored;
        self.sum = m.load_words(&stored.memory, stored.words, stored.passes);
    }

    fn finish(self, m: &mut M, _: &Cell, _: &mut [u8]) {
        let Store { words, passes, .. } = self.stored;
        assert_eq!(self.sum, loops::expected_sum(words, passes));
        m.free(self.stored.memory);
    }
}
