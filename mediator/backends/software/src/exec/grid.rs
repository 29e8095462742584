//! The grid of a launch: its blocks, its threads, and the multiprocessors that they see.

use causeway_mediator::backend::LaunchShape;

use crate::registers::WARP;

/// The multiprocessors on which the kernels of a queue appear to run. The engine has no
/// multiprocessors: kernels only read these numbers from special registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// Lowest number that a block reads from `%smid`. Blocks are assigned to the multiprocessors in
    /// turn, beginning with this one.
    pub first: u32,
    /// Number of multiprocessors to which blocks are assigned; at least 1.
    pub count: u32,
    /// Number of multiprocessors of the whole device, which kernels read from `%nsmid`.
    pub of: u32,
}

impl Default for Multiprocessors {
    fn default() -> Self {
        Self {
            first: 0,
            count: 1,
            of: 1,
        }
    }
}

/// The shape of a launch, with numbers computed from it once.
#[derive(Debug)]
pub(super) struct Grid {
    /// Blocks of the grid and threads of a block, in x, y and z.
    pub(super) shape: LaunchShape,
    /// Thread indices in x, y, z for each warp of a block.
    pub(super) threads: Vec<[[u32; WARP]; 3]>,
    /// Multiprocessors on which the blocks appear to run.
    pub(super) multiprocessors: Multiprocessors,
    /// Address of the memory with which the blocks wait for each other; 0 if they cannot.
    pub(super) workspace: u64,
}

impl Grid {
    /// Creates the grid for a shape that has been checked.
    pub(super) fn new(shape: LaunchShape, multiprocessors: Multiprocessors) -> Self {
        Self {
            shape,
            threads: thread_indices(shape.block),
            multiprocessors,
            workspace: 0,
        }
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.shape.grid.iter().map(|n| u64::from(*n)).product()
    }

    /// Returns the number of threads of a block.
    pub(super) fn block_threads(&self) -> u32 {
        self.shape.block.iter().product()
    }

    /// Returns the position of block number `index` in x, y and z. Numbers ascend along x first.
    pub(super) fn position(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.shape.grid.map(u64::from);
        [index % x, index / x % y, index / x / y].map(|n| n as u32)
    }

    /// Returns the number of the multiprocessor to which a block is dealt.
    pub(super) fn multiprocessor(&self, block: [u32; 3]) -> u32 {
        let [x, y, _] = self.shape.grid.map(u64::from);
        let [bx, by, bz] = block.map(u64::from);
        let place = (bz * y + by) * x + bx;
        let Multiprocessors { first, count, .. } = self.multiprocessors;
        // The remainder is less than a 32-bit count.
        first + (place % u64::from(count.max(1))) as u32
    }
}

fn thread_indices([x, y, z]: [u32; 3]) -> Vec<[[u32; WARP]; 3]> {
    let warps = (x * y * z).div_ceil(WARP as u32);
    let mut at = [0; 3];
    let mut next = || {
        let here = at;
        // Counted up: a division for each index would take longer than a small kernel.
        at[0] += 1;
        if at[0] == x {
            at = [0, at[1] + 1, at[2]];
        }
        if at[1] == y {
            at = [0, 0, at[2] + 1];
        }
        here
    };
    let mut all = vec![[[0; WARP]; 3]; warps as usize];
    for rows in &mut all {
        for lane in 0..WARP {
            for (row, index) in rows.iter_mut().zip(next()) {
                row[lane] = index;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_numbered_x_first() {
        let warps = thread_indices([5, 3, 4]);
        assert_eq!(warps.len(), 2);
        let at = |thread: usize| {
            let [x, y, z] = warps[thread / 32];
            [x[thread % 32], y[thread % 32], z[thread % 32]]
        };
        assert_eq!(at(0), [0, 0, 0]);
        assert_eq!(at(7), [2, 1, 0]);
        assert_eq!(at(59), [4, 2, 3]);
        for block in [
            [1, 1, 1],
            [32, 1, 1],
            [1, 32, 2],
            [7, 1, 9],
            [1024, 1, 1],
            [16, 16, 4],
        ] {
            let [x, y, z] = block;
            for (warp, rows) in (0..).zip(thread_indices(block)) {
                for lane in 0..(x * y * z - 32 * warp).min(32) {
                    let thread = 32 * warp + lane;
                    let expected = [thread % x, thread / x % y, thread / x / y];
                    assert_eq!(rows.map(|row| row[lane as usize]), expected, "{block:?}");
                }
            }
        }
    }
}
