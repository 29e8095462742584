//! Vectors sent, added, and their sum fetched.

use super::{Cell, Description, Workload, pattern, within_exits};
use crate::measurement_plan::Effort;
use crate::{Kernel, Mechanism, MechanismKind, Shape};

pub(super) const DESCRIPTION: Description = Description {
    name: "vector-add",
    what: "two vectors of so many floats sent, added, and the sum fetched",
    unit: "floats",
    is_data: true,
    launches: true,
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
pub struct VectorAdd<M: Mechanism> {
    vectors: [M::Memory; 3],
}

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
        let vectors = core::array::from_fn(|_| m.allocate(bytes));
        for memory in &vectors {
            m.touch(memory, bytes);
        }
        Self { vectors }
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let bytes = 4 * cell.size as usize;
        let [a, b, c] = &self.vectors;
        let addresses = [a, b, c].map(|memory| m.address(memory));
        let shape = Shape {
            grid: [(cell.size as u32).div_ceil(THREADS), 1],
            block: [THREADS, 1],
        };
        let arguments = [addresses[0], addresses[1], addresses[2], cell.size];
        for _ in 0..cell.operations {
            m.copy_in(a, 0, &host[..bytes]);
            m.copy_in(b, 0, &host[bytes..2 * bytes]);
            m.launch(Kernel::VectorAdd, shape, &arguments);
            m.copy_out(c, 0, &mut host[2 * bytes..3 * bytes]);
        }
    }

    fn finish(self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let bytes = 4 * cell.size as usize;
        pattern::check_floats(&host[2 * bytes..3 * bytes], |i| left(i) + right(i));
        self.vectors.into_iter().for_each(|memory| m.free(memory));
    }
}
