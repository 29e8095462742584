//! Stores of words, as a program does that has a pointer.

use super::{Cell, Description, Workload, pattern, within_exits};
use crate::singles::Single;
use crate::{Mechanism, MechanismKind};

/// Sizes in bytes of the memory to which words are stored: one that fits into the processor's
/// caches, and one for which the caches and the TLB are too small.
pub(super) const REGIONS: &[u64] = &[64 << 10, 64 << 20];
/// Minimum number of words in a sample if the program can access memory by a pointer.
pub(super) const WORDS_MIN: u64 = 4 << 20;
/// Number of words in a sample on the memory of a PCI device. It is small, because each load may
/// take a microsecond.
pub(super) const WORDS_FAR: u64 = 64 << 10;

pub(super) const DESCRIPTION: Description = Description {
    name: "store",
    what: "a store of 8 bytes to memory",
    unit: "B",
    is_data: true,
    launches: false,
    // A word takes less time than the timer.
    single: Single::InLoop,
    sizes: |_| REGIONS,
    operations: |mechanism, effort, bytes| match mechanism {
        MechanismKind::Mediated | MechanismKind::Native => Some((bytes / 8).max(WORDS_MIN)),
        MechanismKind::Passthrough | MechanismKind::NativeBar => Some(WORDS_FAR),
        // Sent many at a time.
        MechanismKind::Forward => Some(8 << 10),
        MechanismKind::Trap => within_exits(effort, 512, 1),
    },
    host_bytes: |bytes| bytes as usize,
};

/// Stores 64-bit words to GPU memory.
pub struct Store<M: Mechanism> {
    pub(super) memory: M::Memory,
    /// Number of words that one pass stores: all words of the memory, or fewer if the sample has
    /// fewer operations.
    pub(super) words: usize,
    pub(super) passes: u32,
}

impl<M: Mechanism> Workload<M> for Store<M> {
    fn prepare(m: &mut M, cell: &Cell, _: &mut [u8]) -> Self {
        let words = cell.operations.min(cell.size / 8);
        let stores = Self {
            memory: m.allocate(cell.size as usize),
            words: words as usize,
            passes: (cell.operations / words) as u32,
        };
        // The first touch.
        m.store_words(&stores.memory, stores.words, 1);
        stores
    }

    fn run(&mut self, m: &mut M, _: &Cell, _: &mut [u8]) {
        m.store_words(&self.memory, self.words, self.passes);
        // Stores that are sent many at a time have not arrived before this.
        m.synchronize();
    }

    fn finish(self, m: &mut M, _: &Cell, host: &mut [u8]) {
        let stored = &mut host[..8 * self.words];
        m.copy_out(&self.memory, 0, stored);
        pattern::check_words(stored, |index| 1 + index as u64 / 8);
        m.free(self.memory);
    }
}
