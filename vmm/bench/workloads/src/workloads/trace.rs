//! A step like one of inference: many small launches, few copies, one wait.

use super::operands::Operands;
use super::{Cell, Description, Workload, pattern, within_exits};
use crate::singles::Single;
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
    single: Single::ByItself,
    sizes: |_| &[LAUNCHES],
    operations: |mechanism, effort, _| match mechanism {
        // Seven words and a kick for each launch, three copies word by word.
        MechanismKind::Trap => within_exits(effort, 1, 8 * LAUNCHES + 3 * BYTES as u64 / 8),
        _ => Some(1),
    },
    host_bytes: |_| 3 * BYTES,
};

/// Launches many small kernels, with few copies and one wait, like a step of inference.
pub struct Trace<M: Mechanism>(Operands<M>);

impl<M: Mechanism> Workload<M> for Trace<M> {
    fn prepare(m: &mut M, _: &Cell, host: &mut [u8]) -> Self {
        pattern::fill_floats(&mut host[..2 * BYTES], |i| i as f32);
        host[2 * BYTES..3 * BYTES].fill(0);
        Self(Operands::new(m, BYTES))
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let shape = Shape {
            grid: [1, 1],
            block: [FLOATS as u32, 1],
        };
        let [a, b, c] = self.0.addresses(m);
        for _ in 0..cell.operations {
            self.0.send(m, host);
            // Each launch works on what the one before has left, so that one too few or too many
            // shows.
            for launch in 0..LAUNCHES {
                let (from, to) = match launch % 2 {
                    0 => (a, c),
                    _ => (c, a),
                };
                m.launch(Kernel::VectorAdd, shape, &[from, b, to, FLOATS as u64]);
            }
            self.0.fetch(m, 0, host);
        }
    }

    fn finish(self, m: &mut M, _: &Cell, host: &mut [u8]) {
        // Whole numbers below 2^24 are exact.
        let sums = |i: usize| (i + LAUNCHES as usize * (i + FLOATS)) as f32;
        pattern::check_floats(self.0.result(host), sums);
        self.0.free(m);
    }
}
