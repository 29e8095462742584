//! Clusters: blocks that run at the same time, and reach each other's shared memory.

use crate::error::{Answer, Code};

/// Returns the number of blocks of a grid or a cluster; 0 for what is none.
pub(crate) fn blocks_of(sides: [u32; 3]) -> u64 {
    sides
        .iter()
        .map(|side| u64::from(*side))
        .fold(1, u64::saturating_mul)
}

/// Returns whether a grid consists of whole clusters.
pub(crate) fn divides(cluster: [u32; 3], grid: [u32; 3]) -> bool {
    let mut sides = cluster.into_iter().zip(grid);
    sides.all(|(side, blocks)| side != 0 && blocks.is_multiple_of(side))
}

/// Refuses clusters that do not divide the grid, or have more blocks than the device allows.
pub(crate) fn check_cluster(grid: [u32; 3], cluster: [u32; 3], blocks_max: u64) -> Answer {
    let is_whole = cluster == [0; 3] || divides(cluster, grid);
    match is_whole && blocks_of(cluster) <= blocks_max {
        true => Ok(()),
        false => Err(Code::INVALID_CLUSTER_SIZE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_consists_of_whole_clusters() {
        for (cluster, grid) in [([1; 3], [1; 3]), ([2; 3], [4; 3]), ([3, 1, 2], [9, 1, 2])] {
            assert!(divides(cluster, grid), "{cluster:?} {grid:?}");
        }
        for (cluster, grid) in [
            ([2, 1, 1], [1; 3]),
            ([1, 0, 1], [1; 3]),
            ([64, 1, 1], [1; 3]),
            ([2, 1, 1], [9, 1, 1]),
            ([1, 1, 2], [2, 2, 1]),
        ] {
            assert!(!divides(cluster, grid), "{cluster:?} {grid:?}");
        }
    }
}
