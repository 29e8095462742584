//! Copies from the program's own memory to memory that kernels reach.

use super::{Cell, Description, Workload, of_bytes, over_a_bus, pattern, within_exits};
use crate::measurement_plan::Effort;
use crate::singles::Single;
use crate::{Mechanism, MechanismKind};

pub(super) const DESCRIPTION: Description = Description {
    name: "copy-in",
    what: "a copy to memory of the GPU",
    unit: "B",
    is_data: true,
    launches: false,
    single: Single::ByItself,
    sizes,
    operations: |mechanism, effort, bytes| match mechanism {
        MechanismKind::Trap => within_exits(effort, 32, bytes / 8),
        MechanismKind::Passthrough | MechanismKind::NativeBar => Some(over_a_bus(bytes)),
        _ => Some(of_bytes(bytes, 50_000)),
    },
    host_bytes: |bytes| bytes as usize,
};

/// Returns the sizes of copies that are measured, in bytes.
pub(super) fn sizes(effort: Effort) -> &'static [u64] {
    match effort {
        Effort::Quick => &[64, 4096, 64 << 10],
        Effort::Full => &[
            64,
            512,
            4096,
            32 << 10,
            256 << 10,
            2 << 20,
            16 << 20,
            64 << 20,
            256 << 20,
        ],
    }
}

/// The seed of the pattern.
const SEED: u64 = 0x696e;

/// Copies from the program's buffer to GPU memory, always to the same place.
pub struct CopyIn<M: Mechanism> {
    memory: M::Memory,
}

impl<M: Mechanism> Workload<M> for CopyIn<M> {
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self {
        let bytes = cell.size as usize;
        pattern::fill(&mut host[..bytes], SEED);
        let memory = m.allocate(bytes);
        // The first touch.
        m.copy_in(&memory, 0, &host[..bytes]);
        Self { memory }
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        for _ in 0..cell.operations {
            m.copy_in(&self.memory, 0, &host[..cell.size as usize]);
        }
        m.synchronize();
    }

    fn finish(self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let arrived = &mut host[..cell.size as usize];
        arrived.fill(0);
        m.copy_out(&self.memory, 0, arrived);
        pattern::check(arrived, SEED);
        m.free(self.memory);
    }
}
