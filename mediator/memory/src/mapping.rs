//! Ranges of a memory object in this process.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use causeway_protocol::Access;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::{LARGE_PAGE_BYTES, MemoryError, PageSize, SharedMemory};

/// A touch outside the mapping, or not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {offset:#x}+{bytes:#x} are outside the mapping or not aligned")]
pub struct RangeError {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Memory of a [`SharedMemory`] in this process, until dropped. Other parties may write it at any time.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
    /// Whether the addresses go away with this.
    owned: bool,
}

// SAFETY: a mapping is an address range; every access is volatile or atomic, and bounds-checked.
unsafe impl Send for Mapping {}
// SAFETY: as above; concurrent accesses are what the volatile and atomic operations are for.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(
        memory: &SharedMemory,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let fail = |source: rustix::io::Errno| MemoryError::Map {
            bytes,
            source: source.into(),
        };
        let length = usize::try_from(bytes).map_err(|_| fail(rustix::io::Errno::NOMEM))?;
        let base = reserve_aligned(length, memory.pages()).map_err(fail)?;
        // SAFETY: the range was just reserved by us and nobody else knows it; MAP_FIXED replaces exactly it.
        let mapped = unsafe {
            rustix::mm::mmap(
                base.as_ptr().cast(),
                length,
                protection(access),
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                memory.file(),
                offset,
            )
        };
        let mapping = Self {
            base,
            bytes: length,
            writable: access == Access::ReadWrite,
            owned: true,
        };
        mapped.map_err(fail)?;
        Ok(mapping)
    }

    /// A view of `bytes` bytes that somebody else has mapped at `base`, page-aligned, and unmaps.
    ///
    /// # Safety
    /// Until this is dropped, nobody may unmap the range, or take the rights of `access` from it, and nobody may make
    /// a Rust reference to what is in it: this mapping's users read and write it at any time. Others may do so too.
    pub unsafe fn borrow(base: NonNull<u8>, bytes: usize, access: Access) -> Self {
        Self {
            base,
            bytes,
            writable: access == Access::ReadWrite,
            owned: false,
        }
    }

    /// Bytes of the mapping.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// First byte. Whoever dereferences it must stay within [`Self::bytes`], must not outlive the mapping,
    /// must use volatile or atomic accesses, and must not write a mapping that is read-only.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Puts pages behind the whole range now, so that no first touch has to.
    ///
    /// # Errors
    /// [`MemoryError::Populate`], if there is not enough memory.
    pub fn populate(&self) -> Result<(), MemoryError> {
        let advice = if self.writable {
            Advice::LinuxPopulateWrite
        } else {
            Advice::LinuxPopulateRead
        };
        // SAFETY: populating changes no content, and the range is ours.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, advice) }.map_err(|e| {
            MemoryError::Populate {
                bytes: self.bytes as u64,
                source: e.into(),
            }
        })
    }

    /// Has the first `bytes` bytes (a multiple of 4 KiB; no more than the mapping has) get small pages when they are
    /// touched through this mapping, whatever the object's page size. What is touched sparsely comes sooner that way:
    /// a large page is zeroed as a whole, and on a host that is itself virtual may have to be fetched from the next.
    ///
    /// # Errors
    /// [`MemoryError::Map`]; pages are then as large as they would have been.
    pub fn begin_with_small_pages(&self, bytes: u64) -> Result<(), MemoryError> {
        let length = usize::try_from(bytes).map_or(self.bytes, |bytes| bytes.min(self.bytes));
        // SAFETY: the advice changes no content, and the range is ours.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), length, Advice::LinuxNoHugepage) }
            .map_err(|e| MemoryError::Map {
                bytes,
                source: e.into(),
            })
    }

    /// Copies `into.len()` bytes out, starting at `offset`. What others write meanwhile may or may not be seen.
    ///
    /// # Errors
    /// [`RangeError`], and then nothing was copied.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), RangeError> {
        let source = self.at(offset, into.len() as u64)?;
        // SAFETY: `at` checked the range; the destination is ours alone. The copy goes through a C function
        // that the compiler cannot look into, so racing writers yield stale bytes, not assumptions.
        unsafe { volatile_copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` in, starting at `offset`.
    ///
    /// # Errors
    /// [`RangeError`] for a range outside or a read-only mapping, and then nothing was copied.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), RangeError> {
        let destination = self.at(offset, from.len() as u64)?;
        if !self.writable {
            return Err(RangeError {
                offset,
                bytes: from.len() as u64,
            });
        }
        // SAFETY: as in `read`, with the directions exchanged; the mapping is writable.
        unsafe { volatile_copy(from.as_ptr(), destination, from.len()) };
        Ok(())
    }

    /// Loads an aligned 32-bit word.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn load_u32(&self, offset: u64, order: Ordering) -> Result<u32, RangeError> {
        Ok(self.word::<AtomicU32>(offset)?.load(order))
    }

    /// Loads an aligned 64-bit word.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn load_u64(&self, offset: u64, order: Ordering) -> Result<u64, RangeError> {
        Ok(self.word::<AtomicU64>(offset)?.load(order))
    }

    /// Stores an aligned 64-bit word.
    ///
    /// # Errors
    /// [`RangeError`], for a read-only mapping too.
    pub fn store_u64(&self, offset: u64, value: u64, order: Ordering) -> Result<(), RangeError> {
        if !self.writable {
            return Err(RangeError { offset, bytes: 8 });
        }
        self.word::<AtomicU64>(offset)?.store(value, order);
        Ok(())
    }

    /// An atomic inside the mapping: the one kind of reference to shared memory that is sound.
    fn word<T>(&self, offset: u64) -> Result<&T, RangeError> {
        let bytes = size_of::<T>() as u64;
        let pointer = self.at(offset, bytes)?;
        if !offset.is_multiple_of(bytes) {
            return Err(RangeError { offset, bytes });
        }
        // SAFETY: in range and aligned (the base is page-aligned); T is an atomic, so others may write it.
        Ok(unsafe { &*pointer.cast::<T>() })
    }

    fn at(&self, offset: u64, bytes: u64) -> Result<*mut u8, RangeError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes as u64 => {
                // SAFETY: the offset is within the mapping or one past its end.
                Ok(unsafe { self.base.as_ptr().add(offset as usize) })
            }
            _ => Err(RangeError { offset, bytes }),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: the range is ours; pointers from `as_ptr` must not outlive the mapping.
        if let Err(e) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) } {
            log::error!("cannot unmap {} bytes at {:p}: {e}", self.bytes, self.base);
        }
    }
}

/// Copies between shared memory and memory of our own, opaque to the compiler.
///
/// # Safety
/// Both ranges are valid for `bytes` bytes, and do not overlap.
unsafe fn volatile_copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract. The assembly block keeps the optimizer from merging or repeating accesses.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Protection bits for an access right.
pub(crate) fn protection(access: Access) -> ProtFlags {
    match access {
        Access::None => ProtFlags::empty(),
        Access::Read => ProtFlags::READ,
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    }
}

/// Reserves addresses without memory behind them, 2 MiB-aligned for large pages.
pub(crate) fn reserve_aligned(
    bytes: usize,
    pages: PageSize,
) -> Result<NonNull<u8>, rustix::io::Errno> {
    let align = match pages {
        PageSize::Small => 0,
        PageSize::Large => LARGE_PAGE_BYTES as usize,
    };
    let total = bytes.checked_add(align).ok_or(rustix::io::Errno::NOMEM)?;
    // SAFETY: a fresh reservation at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            total,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }? as usize;
    let base = if align == 0 {
        start
    } else {
        start.next_multiple_of(align)
    };
    let end = (base + bytes).next_multiple_of(4096);
    trim(start, base - start);
    trim(end, (start + total).next_multiple_of(4096) - end);
    NonNull::new(base as *mut u8).ok_or(rustix::io::Errno::NOMEM)
}

/// Gives back the part of a fresh reservation that alignment made superfluous.
fn trim(start: usize, bytes: usize) {
    if bytes != 0 {
        // SAFETY: the range belongs to a reservation made by the caller that nobody else knows of.
        let _ = unsafe { rustix::mm::munmap(start as *mut _, bytes) };
    }
}
