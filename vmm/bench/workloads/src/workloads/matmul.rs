//! Matrices sent, multiplied, and their product fetched.

use super::{Cell, Description, Workload, pattern, within_exits};
use crate::measurement_plan::Effort;
use crate::{Kernel, Mechanism, MechanismKind, Shape};

pub(super) const DESCRIPTION: Description = Description {
    name: "matmul",
    what: "two square matrices of so many rows sent, multiplied, and the product fetched",
    unit: "rows",
    is_data: true,
    launches: true,
    sizes: |effort| match effort {
        Effort::Quick => &[48, 64],
        Effort::Full => &[64, 128, 256, 512],
    },
    operations: |mechanism, effort, rows| match mechanism {
        // Three matrices word by word.
        MechanismKind::Trap => within_exits(effort, 1, 3 * rows * rows / 2),
        _ => Some(1),
    },
    host_bytes: |rows| 3 * bytes(rows),
};

const TILE: u32 = 16;

/// Sends two matrices to the GPU, multiplies them, and fetches the product.
pub struct Matmul<M: Mechanism> {
    matrices: [M::Memory; 3],
}

impl<M: Mechanism> Workload<M> for Matmul<M> {
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self {
        let bytes = bytes(cell.size);
        // Sums of small whole numbers are exact, in whatever order.
        let (a, rest) = host.split_at_mut(bytes);
        pattern::fill_floats(a, |i| (i % 3) as f32);
        pattern::fill_floats(&mut rest[..bytes], |_| 2.0);
        let matrices = core::array::from_fn(|_| m.allocate(bytes));
        for memory in &matrices {
            m.touch(memory, bytes);
        }
        Self { matrices }
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let bytes = bytes(cell.size);
        let [a, b, c] = &self.matrices;
        let addresses = [a, b, c].map(|memory| m.address(memory));
        let tiles = (cell.size as u32).div_ceil(TILE);
        let shape = Shape {
            grid: [tiles, tiles],
            block: [TILE, TILE],
        };
        let [a_at, b_at, c_at] = addresses;
        let arguments = [a_at, b_at, c_at, cell.size, cell.size, cell.size];
        for _ in 0..cell.operations {
            m.copy_in(a, 0, &host[..bytes]);
            m.copy_in(b, 0, &host[bytes..2 * bytes]);
            m.launch(Kernel::Matmul, shape, &arguments);
            m.copy_out(c, 0, &mut host[2 * bytes..3 * bytes]);
        }
    }

    fn finish(self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let (bytes, rows) = (bytes(cell.size), cell.size as usize);
        let product = &host[2 * bytes..3 * bytes];
        for (row, product) in product.chunks_exact(4 * rows).enumerate() {
            let sum: usize = (0..rows).map(|i| (row * rows + i) % 3).sum();
            pattern::check_floats(product, |_| 2.0 * sum as f32);
        }
        self.matrices.into_iter().for_each(|memory| m.free(memory));
    }
}

/// Returns bytes of a matrix.
fn bytes(rows: u64) -> usize {
    4 * (rows * rows) as usize
}
