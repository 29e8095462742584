//! Guest RAM behind the image. It is allocated once and never freed.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::boot::BootInfo;
use causeway_shim::{RamRange, Window};

/// Next free address; zero until the first request.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The RAM between the end of the guest image and 3 GiB. Memory that is allocated from this RAM is
/// never freed.
#[derive(Clone, Copy, Debug)]
pub struct Ram {
    first: u64,
    end: u64,
}

impl Ram {
    pub(crate) fn new(boot: &BootInfo) -> Self {
        Self {
            first: boot.image_end,
            end: boot.ram_low_end,
        }
    }

    /// Allocates `bytes` bytes at a multiple of `alignment`, a power of two. No other caller gets
    /// them.
    fn take(self, bytes: u64, alignment: u64) -> Option<u64> {
        let mut next = NEXT.load(Ordering::Relaxed);
        loop {
            let begin = next.max(self.first).checked_next_multiple_of(alignment)?;
            let end = begin.checked_add(bytes).filter(|end| *end <= self.end)?;
            match NEXT.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(begin),
                Err(seen) => next = seen,
            }
        }
    }

    /// Allocates `bytes` bytes filled with zeros, page-aligned. Returns `None` if not enough RAM is
    /// left.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Option<&'static mut [u8]> {
        let address = self.take(bytes as u64, 4096)?;
        // SAFETY: RAM, identity-mapped, behind the image; `take` gives it to nobody else, ever. The
        // machine starts with zeroed RAM.
        Some(unsafe { core::slice::from_raw_parts_mut(address as *mut u8, bytes) })
    }

    /// Allocates `bytes` bytes filled with zeros, page-aligned, to share with the device. Returns
    /// `None` if not enough RAM is left.
    #[must_use]
    pub fn window(self, bytes: usize) -> Option<Window> {
        let address = self.take(bytes as u64, 4096)?;
        let base = NonNull::new(address as *mut u8)?;
        // SAFETY: as above; nothing makes a reference of it.
        Some(unsafe { Window::new(base, bytes) })
    }

    /// Returns the range of guest-physical addresses that `bytes` occupies, for use in a message.
    #[must_use]
    pub fn range_of(self, bytes: &[u8]) -> RamRange {
        // Identity-mapped.
        RamRange {
            address: bytes.as_ptr() as u64,
            bytes: bytes.len() as u64,
        }
    }
}
