//! Vectors sent, added, and their sum fetched.

use super::operands::Operands;
use super::{Cell, Description, Workload, pattern, within_exits};
use crate::measurement_plan::Effort;
use crate::singles::Single;
use crate::{Kernel, Mechanism, MechanismKind, Shape};

pub(super) const DESCRIPTION: Description = Description {
    name: "vector-add",
    what: "two vectors of so many floats sent, added, and the sum fetched",
    unit: "floats",
    is_data: true,
    launches: true,
    single: Single::ByItself,
    sizes: |effort| match effort {
        Effort::Quick => &[1 << 10, 4 << 10],
        Effort::Full => &[1 << 10, 16 << 10, 256 << 10, 4 << 20],
    },
    operations: |mechanism, effort, floats| match mechanism {
        // Three vectors word by word.
        MechanismKind::Trap => within_exits(effort, 1, 3 * floats / 2),
        _ => Some((64 << 10) / floats.clamp(1, 64 << 10)),
    },
    host_bytes: |floats| 3 * 4 * floats as usize,
};

const THREADS: u32 = 256;

/// Sends two vectors to the GPU, adds them, and fetches the sum.
pub struct VectorAdd<M: Mechanism>(Operands<M>);

fn left(index: usize) -> f32 {
    (index % 1021) as f32
}

fn right(index: usize) -> f32 {
    (index % 509) as f32 * 0.5
}

impl<M: Mechanism> Workload<M> for VectorAdd<M> {
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self {
        let bytes = 4 * cell.size as usize;
        let (a, rest) = host.split_at_mut(bytes);
        pattern::fill_floats(a, left);
        pattern::fill_floats(&mut rest[..bytes], right);
        rest[bytes..2 * bytes].fill(0);
        Self(Operands::new(m, bytes))
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let shape = Shape {
            grid: [(cell.size as u32).div_ceil(THREADS), 1],
            block: [THREADS, 1],
        };
        let [a, b, c] = self.0.addresses(m);
        for _ in 0..cell.operations {
            self.0.send(m, host);
            m.launch(Kernel::VectorAdd, shape, &[a, b, c, cell.size]);
            self.0.fetch(m, 2, host);
        }
    }

    fn finish(self, m: &mut M, _: &Cell, host: &mut [u8]) {
        pattern::check_floats(self.0.result(host), |i| left(i) + right(i));
        self.0.free(m);
    }
}
