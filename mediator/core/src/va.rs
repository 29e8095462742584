//! GPU virtual addresses of one address space.

use std::ops::Range;

use causeway_memory::{PAGE_BYTES, RangeAllocator, page_alignment};
use causeway_protocol::message::Status;

use crate::backend::BackendError;

/// Hands out the GPU virtual addresses of one address space. Sizes and addresses are multiples of 4
/// KiB, and page zero is never handed out.
#[derive(Debug)]
pub struct VaAllocator {
    free: RangeAllocator,
}

impl VaAllocator {
    /// Returns an allocator in which all addresses of `range` except page zero are free.
    pub fn new(range: Range<u64>) -> Self {
        let start = range.start.max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let end = range.end / PAGE_BYTES * PAGE_BYTES;
        Self {
            free: RangeAllocator::new(start..end),
        }
    }

    /// Takes the lowest free range of `bytes` bytes and returns its address; `None` if no free
    /// range is large enough. A range of 2 MiB or more begins at a multiple of 2 MiB, so that large
    /// pages are possible.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        self.free.take_lowest(bytes, page_alignment(bytes))
    }

    /// Takes `bytes` bytes at address `wanted`, or at any free address if `wanted` is `None`.
    /// Returns the address.
    ///
    /// # Errors
    /// `AddressInUse` if the range at `wanted` is not free or not within the allocator's range;
    /// `NoMemory` if `wanted` is `None` and no free range is large enough.
    pub fn place(&mut self, wanted: Option<u64>, bytes: u64) -> Result<u64, BackendError> {
        match wanted {
            None => self.take(bytes).ok_or_else(|| {
                let context = format!("no {bytes:#x} bytes of GPU addresses are free");
                BackendError::new(Status::NoMemory, context)
            }),
            Some(address) if self.free.take_at(address, bytes) => Ok(address),
            Some(address) => {
                let context =
                    format!("GPU addresses {address:#x}+{bytes:#x} are in use or do not exist");
                Err(BackendError::new(Status::AddressInUse, context))
            }
        }
    }

    /// Gives back the `bytes` bytes at `address` that [`Self::take`] or [`Self::place`] has taken.
    pub fn give(&mut self, address: u64, bytes: u64) {
        self.free.give_back(address, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_zero_is_never_given_and_large_ranges_are_aligned() {
        const LARGE: u64 = causeway_memory::LARGE_PAGE_BYTES;
        let mut va = VaAllocator::new(0..1 << 30);
        assert_eq!(va.take(PAGE_BYTES), Some(PAGE_BYTES));
        let zero = va.place(Some(0), PAGE_BYTES).unwrap_err();
        assert_eq!(zero.status, Status::AddressInUse);
        assert_eq!(va.take(LARGE), Some(LARGE));
        assert_eq!(va.take(PAGE_BYTES), Some(2 * PAGE_BYTES));
        let full = va.place(None, 1 << 30).unwrap_err();
        assert_eq!(full.status, Status::NoMemory);
    }
}
