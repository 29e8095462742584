//! Free ranges of addresses: first fit, and neighbours become one.

use std::collections::BTreeMap;

/// Ranges that are free, by their first address.
#[derive(Debug, Default)]
pub(super) struct FreeRanges(BTreeMap<u64, u64>);

impl FreeRanges {
    /// Takes `bytes` bytes out of the first range that has them. Returns the first address.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let fits = self.0.iter().find(|(_, free)| **free >= bytes);
        let (start, free) = fits.map(|(start, free)| (*start, *free))?;
        self.0.remove(&start);
        if free > bytes {
            self.0.insert(start + bytes, free - bytes);
        }
        Some(start)
    }

    /// Makes a range free. It joins the free ranges next to it, unless they lie outside `bounds`
    /// (first and last address).
    pub(super) fn give(&mut self, start: u64, bytes: u64, bounds: (u64, u64)) {
        let (mut start, mut bytes) = (start, bytes);
        let before = self.0.range(..start).next_back();
        let before = before.map(|(at, free)| (*at, *free));
        if let Some((at, free)) = before.filter(|(at, free)| at + free == start && *at >= bounds.0)
        {
            self.0.remove(&at);
            (start, bytes) = (at, free + bytes);
        }
        let end = start + bytes;
        if end <= bounds.1
            && let Some(behind) = self.0.remove(&end)
        {
            bytes += behind;
        }
        self.0.insert(start, bytes);
    }

    /// Takes out a range if all of it is free.
    pub(super) fn take_whole(&mut self, start: u64, bytes: u64) -> bool {
        let is_free = self.0.get(&start) == Some(&bytes);
        if is_free {
            self.0.remove(&start);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (u64, u64) = (0x1000, 0x1fff);

    #[test]
    fn what_was_taken_in_pieces_is_whole_again_when_all_are_given_back() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            let mut free = FreeRanges::default();
            free.give(0x1000, 0x1000, BOUNDS);
            let pieces = [0x400, 0x800, 0x400].map(|bytes| (free.take(bytes).unwrap(), bytes));
            assert_eq!(pieces.map(|(start, _)| start), [0x1000, 0x1400, 0x1c00]);
            assert_eq!(free.take(1), None);
            for index in order {
                let (start, bytes) = pieces[index];
                free.give(start, bytes, BOUNDS);
            }
            assert!(free.take_whole(0x1000, 0x1000), "{order:?}");
        }
    }

    #[test]
    fn neighbours_in_different_chunks_stay_apart() {
        let mut free = FreeRanges::default();
        free.give(0x1000, 0x1000, BOUNDS);
        free.give(0x2000, 0x1000, (0x2000, 0x2fff));
        assert_eq!(free.take(0x1800), None);
        assert!(free.take_whole(0x2000, 0x1000));
        assert!(free.take_whole(0x1000, 0x1000));
    }
}
