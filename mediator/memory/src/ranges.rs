//! Which ranges of addresses or offsets are free, and which of them a new one gets.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{LARGE_PAGE_BYTES, PAGE_BYTES};

/// Allocates ranges of addresses or offsets, and frees them again. Free ranges that touch are
/// merged.
///
/// The `take` methods return the first address of the range, or `None` if no free range is large
/// enough. Alignments must not be zero. No method allocates a range of zero bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeAllocator {
    /// Start to end.
    free: BTreeMap<u64, u64>,
}

impl RangeAllocator {
    /// Returns an allocator in which all of `range` is free.
    pub fn new(range: Range<u64>) -> Self {
        let free = (range.start < range.end).then_some((range.start, range.end));
        Self {
            free: free.into_iter().collect(),
        }
    }

    /// Takes the lowest free range of `bytes` bytes that begins at a multiple of `align`. Returns
    /// its first address; `None` if there is no such range.
    pub fn take_lowest(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let start = self.free.iter().find_map(|(&start, &end)| {
            let start = start.checked_next_multiple_of(align)?;
            (start.checked_add(bytes)? <= end).then_some(start)
        })?;
        self.take_at(start, bytes).then_some(start)
    }

    /// Takes the highest free range of `bytes` bytes that begins at a multiple of `align` and whose
    /// first address `usable` accepts. Returns this address; `None` if there is no such range.
    pub fn take_highest(
        &mut self,
        bytes: u64,
        align: u64,
        usable: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let start = self.free.iter().rev().find_map(|(&start, &end)| {
            let last = end.checked_sub(bytes)? / align;
            let mut starts = (start.div_ceil(align)..=last).rev().map(|i| i * align);
            starts.find(|start| usable(*start))
        })?;
        self.take_at(start, bytes).then_some(start)
    }

    /// Takes a free range of `bytes` bytes, a multiple of 4 KiB, and returns its first address;
    /// `None` if no free range is large enough.
    ///
    /// A range of 2 MiB or more is the lowest free one at a multiple of 2 MiB, so that large pages
    /// are possible. A smaller range is the highest free one, so that small ranges do not break up
    /// the room for large ones.
    pub fn take_by_size(&mut self, bytes: u64) -> Option<u64> {
        if bytes >= LARGE_PAGE_BYTES {
            self.take_lowest(bytes, LARGE_PAGE_BYTES)
        } else {
            self.take_highest(bytes, PAGE_BYTES, |_| true)
        }
    }

    /// Takes the `bytes` bytes at address `start`. Returns false, and takes nothing, if a part of
    /// them is not free.
    #[must_use]
    pub fn take_at(&mut self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else {
            return false;
        };
        let Some((&free_start, &free_end)) = self.free.range(..=start).next_back() else {
            return false;
        };
        if bytes == 0 || end > free_end {
            return false;
        }
        self.free.remove(&free_start);
        if free_start < start {
            self.free.insert(free_start, start);
        }
        if end < free_end {
            self.free.insert(end, free_end);
        }
        true
    }

    /// Takes all free ranges, and returns them in ascending order.
    pub fn take_all(&mut self) -> impl Iterator<Item = Range<u64>> + use<> {
        let free = std::mem::take(&mut self.free);
        free.into_iter().map(|(start, end)| start..end)
    }

    /// Gives back the `bytes` bytes at address `start`, which must have been taken.
    pub fn give_back(&mut self, start: u64, bytes: u64) {
        let (mut first, mut end) = (start, start + bytes);
        if let Some((&before, &before_end)) = self.free.range(..start).next_back()
            && before_end == start
        {
            first = before;
        }
        if let Some(behind_end) = self.free.remove(&end) {
            end = behind_end;
        }
        self.free.insert(first, end);
    }
}

/// Returns the alignment in bytes that lets a mapping of `bytes` bytes use the largest pages: 2 MiB
/// for 2 MiB and more, otherwise 4 KiB.
pub fn page_alignment(bytes: u64) -> u64 {
    if bytes >= LARGE_PAGE_BYTES {
        LARGE_PAGE_BYTES
    } else {
        PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn large_ones_come_from_the_bottom_and_small_ones_from_the_top() {
        let mut ranges = RangeAllocator::new(0..64 * MIB);
        assert_eq!(ranges.take_by_size(4 * MIB), Some(0));
        assert_eq!(ranges.take_by_size(4096), Some(64 * MIB - 4096));
        assert_eq!(ranges.take_by_size(2 * MIB + 4096), Some(4 * MIB));
        assert_eq!(
            ranges.take_by_size(2 * MIB),
            Some(8 * MIB),
            "aligned past the odd page"
        );
        assert_eq!(ranges.take_by_size(8192), Some(64 * MIB - 3 * 4096));
    }

    #[test]
    fn the_first_hole_that_fits_is_used_again() {
        let mut ranges = RangeAllocator::new(0..64 * MIB);
        let a = ranges.take_by_size(4 * MIB).unwrap();
        let _b = ranges.take_by_size(4 * MIB).unwrap();
        ranges.give_back(a, 4 * MIB);
        assert_eq!(ranges.take_by_size(6 * MIB), Some(8 * MIB));
        assert_eq!(ranges.take_by_size(4 * MIB), Some(0));
    }

    #[test]
    fn the_highest_usable_range_is_aligned() {
        let mut ranges = RangeAllocator::new(0..64 * MIB);
        let mut highest =
            |bytes, usable: fn(u64) -> bool| ranges.take_highest(bytes, bytes, usable);
        assert_eq!(highest(4096, |_| true), Some(64 * MIB - 4096));
        assert_eq!(highest(16 * MIB, |_| true), Some(32 * MIB));
        assert_eq!(highest(16 * MIB, |start| start < 16 * MIB), Some(0));
        assert_eq!(highest(32 * MIB, |_| true), None);
        assert_eq!(highest(16 * MIB, |_| true), Some(16 * MIB));
        ranges.give_back(32 * MIB, 16 * MIB);
        assert_eq!(ranges.take_by_size(30 * MIB), Some(32 * MIB));
    }

    #[test]
    fn what_is_left_beside_a_range_that_was_taken_is_never_empty() {
        let taken = |start, bytes| {
            let mut ranges = RangeAllocator::new(0..4 * MIB);
            assert!(ranges.take_at(start, bytes));
            let left = ranges.take_all().map(|range| (range.start, range.end));
            left.collect::<Vec<_>>()
        };
        assert_eq!(taken(0, 4 * MIB), []);
        assert_eq!(taken(0, MIB), [(MIB, 4 * MIB)]);
        assert_eq!(taken(MIB, 3 * MIB), [(0, MIB)]);
        assert_eq!(taken(MIB, MIB), [(0, MIB), (2 * MIB, 4 * MIB)]);
    }

    #[test]
    fn ranges_of_large_pages_begin_at_one() {
        for (bytes, alignment) in [
            (1, PAGE_BYTES),
            (LARGE_PAGE_BYTES - 1, PAGE_BYTES),
            (LARGE_PAGE_BYTES, LARGE_PAGE_BYTES),
            (LARGE_PAGE_BYTES + 1, LARGE_PAGE_BYTES),
        ] {
            assert_eq!(page_alignment(bytes), alignment, "{bytes}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut ranges = RangeAllocator::new(0..8 * MIB);
        for bytes in [0, 8 * MIB + 4096, !0xfff] {
            assert_eq!(ranges.take_by_size(bytes), None);
            assert_eq!(ranges.take_lowest(bytes, 4096), None);
        }
        assert_eq!(ranges.take_by_size(8 * MIB), Some(0));
        assert_eq!(ranges.take_by_size(4096), None);
    }

    #[test]
    fn taken_outside_and_overflowing_ranges_are_refused() {
        let mut ranges = RangeAllocator::new(0x10000..0x20000);
        assert!(ranges.take_at(0x12000, 0x2000));
        for (start, bytes) in [
            (0x12000, 0x1000),
            (0x11000, 0x2000),
            (0x13000, 0x2000),
            (0xf000, 0x2000),
            (0x1f000, 0x2000),
            (u64::MAX - 0xfff, 0x1000),
            (0x15000, 0),
        ] {
            assert!(!ranges.take_at(start, bytes), "{start:#x}+{bytes:#x}");
        }
        assert_eq!(ranges.take_lowest(0x20000, 0x1000), None);
        ranges.give_back(0x12000, 0x2000);
        assert!(
            ranges.take_at(0x10000, 0x10000),
            "neighbours are not merged"
        );
    }

    proptest! {
        /// Ranges that are taken in any way never overlap. Given back, they are one free range.
        #[test]
        fn ranges_never_overlap_and_all_come_back(
            steps in prop::collection::vec((0u8..5, 1u64..1024, 0u64..9000), 1..200)
        ) {
            let space = 0x10000..0x10000 + 32 * MIB;
            let mut ranges = RangeAllocator::new(space.clone());
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (step, pages, place) in steps {
                let bytes = pages * PAGE_BYTES;
                let wanted = space.start + place * PAGE_BYTES;
                let start = match step {
                    0 if !taken.is_empty() => {
                        let (start, bytes) = taken.swap_remove(place as usize % taken.len());
                        ranges.give_back(start, bytes);
                        None
                    }
                    1 => ranges.take_at(wanted, bytes).then_some(wanted),
                    2 => ranges.take_lowest(bytes, page_alignment(bytes)),
                    3 => ranges.take_highest(bytes, PAGE_BYTES, |_| true),
                    _ => ranges.take_by_size(bytes),
                };
                taken.extend(start.map(|start| (start, bytes)));
                let mut sorted = taken.clone();
                sorted.sort_unstable();
                prop_assert!(sorted.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
                prop_assert!(sorted.iter().all(|(a, b)| *a >= space.start && a + b <= space.end));
            }
            for (start, bytes) in taken {
                ranges.give_back(start, bytes);
            }
            prop_assert_eq!(ranges.take_all().collect::<Vec<_>>(), [space]);
        }
    }
}
