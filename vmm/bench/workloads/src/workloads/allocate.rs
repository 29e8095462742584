//! Memory taken, mapped for kernels and the program, and given back.

use core::marker::PhantomData;

use super::{Cell, Description, Workload, within_exits};
use crate::measurement_plan::Effort;
use crate::singles::Single;
use crate::{Mechanism, MechanismKind};

pub(super) const DESCRIPTION: Description = Description {
    name: "allocate",
    what: "memory allocated, mapped, and freed",
    unit: "B",
    is_data: false,
    launches: false,
    single: Single::ByItself,
    sizes: |effort| match effort {
        Effort::Quick => &[64 << 10, 4 << 20],
        Effort::Full => &[64 << 10, 1 << 20, 16 << 20, 128 << 20],
    },
    operations: |mechanism, effort, _| match mechanism {
        MechanismKind::Native => Some(50),
        // Two packets of two words with their kicks, and two results.
        _ => within_exits(effort, 50, 8),
    },
    host_bytes: |_| 0,
};

/// Allocates and frees memory, one allocation after the other.
pub struct Allocate<M>(PhantomData<fn(M)>);

impl<M: Mechanism> Workload<M> for Allocate<M> {
    fn prepare(_: &mut M, _: &Cell, _: &mut [u8]) -> Self {
        Self(PhantomData)
    }

    fn run(&mut self, m: &mut M, cell: &Cell, _: &mut [u8]) {
        for _ in 0..cell.operations {
            let memory = m.allocate(cell.size as usize);
            m.free(memory);
        }
        m.synchronize();
    }

    fn finish(self, _: &mut M, _: &Cell, _: &mut [u8]) {}
}
