//! Copies from memory that kernels reach to the program's own.

use super::{Cell, Description, Workload, of_bytes, over_a_bus, pattern, within_exits};
use crate::singles::Single;
use crate::{Mechanism, MechanismKind};

pub(super) const DESCRIPTION: Description = Description {
    name: "copy-out",
    what: "a copy from memory of the GPU",
    unit: "B",
    is_data: true,
    launches: false,
    single: Single::ByItself,
    sizes: super::copy_in::sizes,
    operations: |mechanism, effort, bytes| match mechanism {
        MechanismKind::Trap => within_exits(effort, 32, bytes / 8),
        MechanismKind::Forward => within_exits(effort, of_bytes(bytes, 500), 1),
        MechanismKind::Passthrough | MechanismKind::NativeBar => Some(over_a_bus(bytes)),
        MechanismKind::Mediated | MechanismKind::Native => Some(of_bytes(bytes, 50_000)),
    },
    host_bytes: |bytes| bytes as usize,
};

/// The seed of the pattern.
const SEED: u64 = 0x006f_7574;

/// Copies from GPU memory to the program's buffer, always from the same place.
pub struct CopyOut<M: Mechanism> {
    memory: M::Memory,
}

impl<M: Mechanism> Workload<M> for CopyOut<M> {
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self {
        let host = &mut host[..cell.size as usize];
        pattern::fill(host, SEED);
        let memory = m.allocate(host.len());
        m.copy_in(&memory, 0, host);
        host.fill(0);
        Self { memory }
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        for _ in 0..cell.operations {
            m.copy_out(&self.memory, 0, &mut host[..cell.size as usize]);
        }
    }

    fn finish(self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        pattern::check(&host[..cell.size as usize], SEED);
        m.free(self.memory);
    }
}
