//! Launches of an empty kernel, each waited for.

use core::marker::PhantomData;

use super::{Cell, Description, Workload, within_exits};
use crate::singles::Single;
use crate::{Kernel, Mechanism, MechanismKind, Shape};

pub(super) const DESCRIPTION: Description = Description {
    name: "launch-and-wait",
    what: "a launch of an empty kernel, waited for",
    unit: "",
    is_data: true,
    launches: true,
    single: Single::ByItself,
    sizes: |_| &[1],
    operations: |mechanism, effort, _| match mechanism {
        MechanismKind::Trap => within_exits(effort, 50, 5),
        _ => Some(200),
    },
    host_bytes: |_| 0,
};

/// A launch of one thread, because the workload measures the launch and not the kernel.
pub(super) const ONE_THREAD: Shape = Shape {
    grid: [1, 1],
    block: [1, 1],
};

/// Launches an empty kernel and waits for its end, again and again.
pub struct LaunchAndWait<M>(PhantomData<fn(M)>);

impl<M: Mechanism> Workload<M> for LaunchAndWait<M> {
    fn prepare(_: &mut M, _: &Cell, _: &mut [u8]) -> Self {
        Self(PhantomData)
    }

    fn run(&mut self, m: &mut M, cell: &Cell, _: &mut [u8]) {
        for _ in 0..cell.operations {
            m.launch(Kernel::Nothing, ONE_THREAD, &[]);
            m.synchronize();
        }
    }

    fn finish(self, _: &mut M, _: &Cell, _: &mut [u8]) {}
}
