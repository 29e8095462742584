//! Free ranges of the aperture.

use std::collections::BTreeMap;

use causeway_memory::{LARGE_PAGE_BYTES, PAGE_BYTES};

/// Free ranges by offset. Neighbours are merged, so no two touch.
///
/// What could use 2 MiB pages is taken from the bottom, at 2 MiB boundaries; what is smaller is packed from the top.
/// So small placements neither break up the room of large ones nor stand in slots that those share.
#[derive(Debug, Default)]
pub struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// `bytes` free bytes from offset zero.
    pub fn new(bytes: u64) -> Self {
        Self {
            free: BTreeMap::from([(0, bytes)]),
        }
    }

    /// The highest range of `bytes` bytes at a multiple of `bytes` that is free and that `usable` likes.
    pub fn allocate_highest(&mut self, bytes: u64, usable: impl Fn(u64) -> bool) -> Option<u64> {
        let (hole, start) = self.free.iter().rev().find_map(|(&base, &length)| {
            let last = (base + length).checked_sub(bytes)? / bytes;
            let first = base.div_ceil(bytes);
            let mut starts = (first..=last).rev().map(|index| index * bytes);
            starts
                .find(|start| usable(*start))
                .map(|start| (base, start))
        })?;
        self.take(hole, start, bytes);
        Some(start)
    }

    /// First fit for `bytes` bytes, a multiple of 4 KiB and not zero. `None` if there is no room.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let (hole, start) = if bytes >= LARGE_PAGE_BYTES {
            self.lowest(bytes)?
        } else {
            self.highest(bytes)?
        };
        self.take(hole, start, bytes);
        Some(start)
    }

    /// Gives back what [`Self::allocate`] gave.
    pub fn free(&mut self, start: u64, bytes: u64) {
        let (mut base, mut length) = (start, bytes);
        if let Some(behind) = self.free.remove(&(start + bytes)) {
            length += behind;
        }
        if let Some((&before, &before_bytes)) = self.free.range(..start).next_back()
            && before + before_bytes == start
        {
            base = before;
            length += before_bytes;
        }
        self.free.insert(base, length);
    }

    fn lowest(&self, bytes: u64) -> Option<(u64, u64)> {
        self.free.iter().find_map(|(&base, &length)| {
            let start = base.next_multiple_of(LARGE_PAGE_BYTES);
            let end = start.checked_add(bytes)?;
            (end <= base + length).then_some((base, start))
        })
    }

    fn highest(&self, bytes: u64) -> Option<(u64, u64)> {
        let mut holes = self.free.iter().rev();
        let (&base, &length) = holes.find(|(_, length)| **length >= bytes)?;
        debug_assert!((base + length - bytes).is_multiple_of(PAGE_BYTES));
        Some((base, base + length - bytes))
    }

    /// Cuts `[start, start + bytes)` out of the free range at `base`.
    fn take(&mut self, base: u64, start: u64, bytes: u64) {
        let Some(length) = self.free.remove(&base) else {
            return;
        };
        if start > base {
            self.free.insert(base, start - base);
        }
        let rest = base + length - (start + bytes);
        if rest > 0 {
            self.free.insert(start + bytes, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn large_ones_come_from_the_bottom_and_small_ones_from_the_top() {
        let mut extents = Extents::new(64 * MIB);
        assert_eq!(extents.allocate(4 * MIB), Some(0));
        assert_eq!(extents.allocate(4096), Some(64 * MIB - 4096));
        assert_eq!(extents.allocate(2 * MIB + 4096), Some(4 * MIB));
        assert_eq!(
            extents.allocate(2 * MIB),
            Some(8 * MIB),
            "aligned past the odd page"
        );
        assert_eq!(extents.allocate(8192), Some(64 * MIB - 3 * 4096));
    }

    #[test]
    fn the_first_hole_that_fits_is_used_again() {
        let mut extents = Extents::new(64 * MIB);
        let a = extents.allocate(4 * MIB).unwrap();
        let _b = extents.allocate(4 * MIB).unwrap();
        extents.free(a, 4 * MIB);
        assert_eq!(extents.allocate(6 * MIB), Some(8 * MIB));
        assert_eq!(extents.allocate(4 * MIB), Some(0));
    }

    #[test]
    fn the_highest_usable_range_is_aligned_to_its_size() {
        let mut extents = Extents::new(64 * MIB);
        assert_eq!(extents.allocate(4096), Some(64 * MIB - 4096));
        assert_eq!(extents.allocate_highest(16 * MIB, |_| true), Some(32 * MIB));
        let usable = |start| start < 16 * MIB;
        assert_eq!(extents.allocate_highest(16 * MIB, usable), Some(0));
        assert_eq!(extents.allocate_highest(32 * MIB, |_| true), None);
        assert_eq!(extents.allocate_highest(16 * MIB, |_| true), Some(16 * MIB));
        extents.free(32 * MIB, 16 * MIB);
        assert_eq!(extents.allocate(30 * MIB), Some(32 * MIB));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut extents = Extents::new(8 * MIB);
        for bytes in [8 * MIB + 4096, !0xfff] {
            assert_eq!(extents.allocate(bytes), None);
        }
        assert_eq!(extents.allocate(8 * MIB), Some(0));
        assert_eq!(extents.allocate(4096), None);
    }

    proptest! {
        /// Whatever is taken and given back: nothing overlaps, and in the end all is one free range again.
        #[test]
        fn ranges_never_overlap_and_all_comes_back(steps in prop::collection::vec((0u64..4096, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let total = 32 * MIB;
            let mut extents = Extents::new(total);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (pages, give_back, which) in steps {
                if give_back && !taken.is_empty() {
                    let (start, bytes) = taken.swap_remove(which.index(taken.len()));
                    extents.free(start, bytes);
                } else if let Some(start) = extents.allocate((pages + 1) * 4096) {
                    let bytes = (pages + 1) * 4096;
                    prop_assert!(start + bytes <= total);
                    for (other, length) in &taken {
                        prop_assert!(start + bytes <= *other || other + length <= start);
                    }
                    taken.push((start, bytes));
                }
            }
            for (start, bytes) in taken {
                extents.free(start, bytes);
            }
            prop_assert_eq!(extents.free, BTreeMap::from([(0, total)]));
        }
    }
}
