//! Launches of an empty kernel, one behind the other, waited for once.

use core::marker::PhantomData;

use super::launch_and_wait::ONE_THREAD;
use super::{Cell, Description, Workload, within_exits};
use crate::measurement_plan::Effort;
use crate::singles::Single;
use crate::{Kernel, Mechanism, MechanismKind};

pub(super) const DESCRIPTION: Description = Description {
    name: "submit",
    what: "a launch of an empty kernel, of so many that are waited for once",
    unit: "launches",
    is_data: true,
    launches: true,
    single: Single::OfMany,
    sizes: |effort| match effort {
        Effort::Quick => &[1, 100, 1000],
        Effort::Full => &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
    },
    operations: |mechanism, effort, count| match mechanism {
        // Three words and a kick.
        MechanismKind::Trap => within_exits(effort, 1, 4 * count).map(|_| count),
        _ => Some(count),
    },
    host_bytes: |_| 0,
};

/// Launches an empty kernel as often as the size says, and waits once.
pub struct Submit<M>(PhantomData<fn(M)>);

impl<M: Mechanism> Workload<M> for Submit<M> {
    fn prepare(_: &mut M, _: &Cell, _: &mut [u8]) -> Self {
        Self(PhantomData)
    }

    fn run(&mut self, m: &mut M, cell: &Cell, _: &mut [u8]) {
        for _ in 0..cell.operations {
            m.launch(Kernel::Nothing, ONE_THREAD, &[]);
        }
        m.synchronize();
    }

    fn finish(self, _: &mut M, _: &Cell, _: &mut [u8]) {}
}
