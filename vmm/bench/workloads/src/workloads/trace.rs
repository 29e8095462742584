//! A step like one of inference: many small launches, few copies, one wait.

use super::{Cell, Description, Workload, pattern, within_exits};
use crate::{Kernel, Mechanism, MechanismKind, Shape};

/// Launches of a step.
const LAUNCHES: u64 = 300;
/// Floats of the vectors that they work on.
const FLOATS: usize = 256;
const BYTES: usize = 4 * FLOATS;

pub(super) const DESCRIPTION: Description = Description {
    name: "trace",
    what: "a step of 300 small launches, 3 copies of 1 KiB and 1 wait",
    unit: "launches",
    is_data: true,
    launches: true,
    sizes: |_| &[LAUNCHES],
    operations: |mechanism, effort, _| match mechanism {
        // Seven words and a kick for each launch, three copies word by word.
        MechanismKind::Trap => within_exits(effort, 1, 8 * LAUNCHES + 3 * BYTES as u64 / 8),
        _ => Some(1),
    },
    host_bytes: |_| 3 * BYTES,
};

/// Launches many small kernels, with few copies and one wait, like a step of inference.
pub struct Trace<M: Mechanism> {
    vectors: [M::Memory; 3],
}

impl<M: Mechanism> Workload<M> for Trace<M> {
    fn prepare(m: &mut M, _: &Cell, host: &mut [u8]) -> Self {
        pattern::fill_floats(&mut host[..2 * BYTES], |i| i as f32);
        host[2 * BYTES..3 * BYTES].fill(0);
        let vectors = core::array::from_fn(|_| m.allocate(BYTES));
        for memory in &vectors {
            m.touch(memory, BYTES);
        }
        Self { vectors }
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let [a, b, c] = &self.vectors;
        let addresses = [a, b, c].map(|memory| m.address(memory));
        let shape = Shape {
            grid: [1, 1],
            block: [FLOATS as u32, 1],
        };
        let [a_at, b_at, c_at] = addresses;
        for _ in 0..cell.operations {
            m.copy_in(a, 0, &host[..BYTES]);
            m.copy_in(b, 0, &host[BYTES..2 * BYTES]);
            // Each launch works on what the one before has left, so that one too few or too many
            // shows.
            for launch in 0..LAUNCHES {
                let (from, to) = match launch % 2 {
                    0 => (a_at, c_at),
                    _ => (c_at, a_at),
                };
                let arguments = [from, b_at, to, FLOATS as u64];
                m.launch(Kernel::VectorAdd, shape, &arguments);
            }
            m.copy_out(a, 0, &mut host[2 * BYTES..3 * BYTES]);
        }
    }

    fn finish(self, m: &mut M, _: &Cell, host: &mut [u8]) {
        // Whole numbers below 2^24 are exact.
        let sums = |i: usize| (i + LAUNCHES as usize * (i + FLOATS)) as f32;
        pattern::check_floats(&host[2 * BYTES..3 * BYTES], sums);
        self.vectors.into_iter().for_each(|memory| m.free(memory));
    }
}
