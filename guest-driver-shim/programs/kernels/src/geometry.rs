//! How the grid and block of a launch may vary without changing its result.

/// Says how the grid and the block of a case may vary without a change of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Neither grid nor block may vary.
    Fixed,
    /// The number of blocks in x may be any: the threads share the work, however many they are.
    Loop,
    /// The number of threads in each direction must stay; they may be split into blocks in other
    /// ways.
    Split,
    /// The threads may be split into blocks in other ways, and there may be more threads in each
    /// direction: the additional ones do nothing.
    Cover,
}

/// Threads of the largest block that is chosen. Kernels with many registers cannot have more.
const BLOCK_THREADS_MAX: u32 = 512;
/// Threads of the smallest block that is chosen: a warp.
const BLOCK_THREADS_MIN: u32 = 32;

impl Geometry {
    /// Returns a grid and a block with which the case can be launched. `way` selects one of the
    /// possibilities: 0 selects `grid` and `block`, other numbers select others where possible.
    pub(crate) fn shape(self, way: u64, grid: [u32; 3], block: [u32; 3]) -> ([u32; 3], [u32; 3]) {
        let ([blocks, gy, gz], [threads, by, bz]) = (grid, block);
        let pick = |choices: u32| (way % u64::from(choices)) as u32;
        match self {
            _ if way == 0 => (grid, block),
            Self::Fixed => (grid, block),
            Self::Loop => ([1 + pick(2 * blocks), gy, gz], block),
            Self::Split | Self::Cover => {
                let all = blocks * threads;
                let fits = |width: &u32| {
                    let count = width * by * bz;
                    all.is_multiple_of(*width)
                        && count.is_multiple_of(BLOCK_THREADS_MIN)
                        && count <= BLOCK_THREADS_MAX
                };
                let widths = (0..=9).map(|power| 1 << power).filter(fits);
                let choices = widths.clone().count() as u32;
                let width = widths.clone().nth(pick(choices.max(1)) as usize);
                let width = width.unwrap_or(threads);
                let more = match self {
                    Self::Cover => pick(3),
                    _ => 0,
                };
                ([all / width + more, gy, gz], [width, by, bz])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(grid: [u32; 3], block: [u32; 3]) -> [u32; 3] {
        core::array::from_fn(|k| grid[k] * block[k])
    }

    #[test]
    fn every_way_has_the_threads_that_it_takes() {
        let (grid, block) = ([1024, 6, 1], [64, 2, 1]);
        let usual = threads(grid, block);
        let mut shapes = [std::vec::Vec::new(), std::vec::Vec::new()];
        for way in 0..40 {
            assert_eq!(Geometry::Fixed.shape(way, grid, block), (grid, block));
            let (looping, same) = Geometry::Loop.shape(way, grid, block);
            assert!(looping[0] > 0 && same == block);
            let split = Geometry::Split.shape(way, grid, block);
            assert_eq!(threads(split.0, split.1), usual);
            let cover = Geometry::Cover.shape(way, grid, block);
            let count = threads(cover.0, cover.1);
            assert!(count[0] >= usual[0] && count[1..] == usual[1..]);
            for (_, [x, y, z]) in [split, cover] {
                assert!((32..=512).contains(&(x * y * z)), "{x} {y} {z}");
            }
            shapes[0].push(split);
            shapes[1].push(cover);
        }
        for shapes in &shapes {
            assert_eq!(shapes[0], (grid, block));
            assert!(shapes[1..].iter().any(|shape| *shape != shapes[0]));
        }
    }
}
