//! Matrices sent, multiplied, and their product fetched.

use super::operands::Operands;
use super::{Cell, Description, Workload, pattern, within_exits};
use crate::measurement_plan::Effort;
use crate::singles::Single;
use crate::{Kernel, Mechanism, MechanismKind, Shape};

pub(super) const DESCRIPTION: Description = Description {
    name: "matmul",
    what: "two square matrices of so many rows sent, multiplied, and the product fetched",
    unit: "rows",
    is_data: true,
    launches: true,
    single: Single::ByItself,
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
pub struct Matmul<M: Mechanism>(Operands<M>);

impl<M: Mechanism> Workload<M> for Matmul<M> {
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self {
        let bytes = bytes(cell.size);
        // Sums of small whole numbers are exact, in whatever order.
        let (a, rest) = host.split_at_mut(bytes);
        pattern::fill_floats(a, |i| (i % 3) as f32);
        pattern::fill_floats(&mut rest[..bytes], |_| 2.0);
        Self(Operands::new(m, bytes))
    }

    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let tiles = (cell.size as u32).div_ceil(TILE);
        let shape = Shape {
            grid: [tiles, tiles],
            block: [TILE, TILE],
        };
        let [a, b, c] = self.0.addresses(m);
        let arguments = [a, b, c, cell.size, cell.size, cell.size];
        for _ in 0..cell.operations {
            self.0.send(m, host);
            m.launch(Kernel::Matmul, shape, &arguments);
            self.0.fetch(m, 2, host);
        }
    }

    fn finish(self, m: &mut M, cell: &Cell, host: &mut [u8]) {
        let rows = cell.size as usize;
        let product = self.0.result(host);
        for (row, product) in product.chunks_exact(4 * rows).enumerate() {
            let sum: usize = (0..rows).map(|i| (row * rows + i) % 3).sum();
            pattern::check_floats(product, |_| 2.0 * sum as f32);
        }
        self.0.free(m);
    }
}

/// Returns bytes of a matrix.
fn bytes(rows: u64) -> usize {
    4 * (rows * rows) as usize
}
