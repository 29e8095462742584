//! GPU virtual addresses of one address space.

use std::collections::BTreeMap;
use std::ops::Range;

use causeway_memory::{LARGE_PAGE_BYTES, PAGE_BYTES};
use causeway_protocol::message::Status;

use crate::backend::BackendError;

/// Free addresses; first fit. Sizes and addresses are multiples of 4 KiB, and page zero is never given.
#[derive(Debug)]
pub struct VaAllocator {
    /// Free ranges: start to end. No two touch.
    free: BTreeMap<u64, u64>,
}

impl VaAllocator {
    /// All of `range` is free, but for page zero.
    pub fn new(range: Range<u64>) -> Self {
        let start = range.start.max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let end = range.end / PAGE_BYTES * PAGE_BYTES;
        let free = (start < end).then_some((start, end)).into_iter().collect();
        Self { free }
    }

    /// Takes `bytes` bytes anywhere: 2 MiB-aligned if there are as many, so that large pages are possible.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let align = if bytes >= LARGE_PAGE_BYTES {
            LARGE_PAGE_BYTES
        } else {
            PAGE_BYTES
        };
        let address = self.free.iter().find_map(|(start, end)| {
            let address = start.checked_next_multiple_of(align)?;
            (address.checked_add(bytes)? <= *end).then_some(address)
        })?;
        self.take_at(address, bytes).then_some(address)
    }

    /// Takes exactly `[address, address + bytes)`. False if a part of it is taken or outside.
    #[must_use]
    pub fn take_at(&mut self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else {
            return false;
        };
        let Some((&free_start, &free_end)) = self.free.range(..=address).next_back() else {
            return false;
        };
        if bytes == 0 || end > free_end {
            return false;
        }
        self.free.remove(&free_start);
        if free_start < address {
            self.free.insert(free_start, address);
        }
        if end < free_end {
            self.free.insert(end, free_end);
        }
        true
    }

    /// Takes `bytes` bytes at `wanted`, or anywhere.
    ///
    /// # Errors
    /// `AddressInUse` if `wanted` is not free, `NoMemory` if there is no room at all.
    pub fn place(&mut self, wanted: Option<u64>, bytes: u64) -> Result<u64, BackendError> {
        let refused = |status, context| BackendError {
            status,
            context,
            source: None,
        };
        match wanted {
            None => self.take(bytes).ok_or_else(|| {
                let context = format!("no {bytes:#x} bytes of GPU addresses are free");
                refused(Status::NoMemory, context)
            }),
            Some(address) if self.take_at(address, bytes) => Ok(address),
            Some(address) => {
                let context = format!("GPU addresses {address:#x}+{bytes:#x} are taken or outside");
                Err(refused(Status::AddressInUse, context))
            }
        }
    }

    /// Takes all that is free: first addresses and ends, in order.
    pub fn take_all(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.free).into_iter().collect()
    }

    /// Gives back what [`Self::take`] or [`Self::take_at`] took.
    pub fn give(&mut self, address: u64, bytes: u64) {
        let (mut start, mut end) = (address, address + bytes);
        if let Some((&before, &before_end)) = self.free.range(..address).next_back()
            && before_end == address
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after_end) = self.free.remove(&end) {
            end = after_end;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn page_zero_is_never_given_and_large_ranges_are_aligned() {
        let mut va = VaAllocator::new(0..1 << 30);
        assert_eq!(va.take(PAGE_BYTES), Some(PAGE_BYTES));
        assert!(!va.take_at(0, PAGE_BYTES));
        assert_eq!(va.take(LARGE_PAGE_BYTES), Some(LARGE_PAGE_BYTES));
        assert_eq!(va.take(PAGE_BYTES), Some(2 * PAGE_BYTES));
    }

    #[test]
    fn taken_outside_and_overflowing_ranges_are_refused() {
        let mut va = VaAllocator::new(0x10000..0x20000);
        assert!(va.take_at(0x12000, 0x2000));
        for (address, bytes) in [
            (0x12000, 0x1000),
            (0x11000, 0x2000),
            (0x13000, 0x2000),
            (0xf000, 0x2000),
            (0x1f000, 0x2000),
            (u64::MAX - 0xfff, 0x1000),
            (0x15000, 0),
        ] {
            assert!(!va.take_at(address, bytes), "{address:#x}+{bytes:#x}");
        }
        assert_eq!(va.take(0x20000), None);
        va.give(0x12000, 0x2000);
        assert!(va.take_at(0x10000, 0x10000), "neighbours were merged");
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_come_back(
            steps in prop::collection::vec((any::<bool>(), 1u64..40, 0u64..300), 1..200)
        ) {
            let (start, end) = (0x10000, 0x10000 + 256 * PAGE_BYTES);
            let mut va = VaAllocator::new(start..end);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (release, pages, place) in steps {
                let bytes = pages * PAGE_BYTES;
                if release && !taken.is_empty() {
                    let (address, bytes) = taken.swap_remove(place as usize % taken.len());
                    va.give(address, bytes);
                } else if place % 2 == 0 {
                    taken.extend(va.take(bytes).map(|address| (address, bytes)));
                } else if va.take_at(start + place * PAGE_BYTES, bytes) {
                    taken.push((start + place * PAGE_BYTES, bytes));
                }
                let mut sorted = taken.clone();
                sorted.sort_unstable();
                prop_assert!(sorted.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
                prop_assert!(sorted.iter().all(|(a, b)| *a >= start && a + b <= end));
            }
            for (address, bytes) in taken {
                va.give(address, bytes);
            }
            prop_assert!(va.take_at(start, end - start));
        }
    }
}
