//! Ranges of a memory object in this process.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use causeway_protocol::Access;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::{LARGE_PAGE_BYTES, MemoryError, PageSize, SharedMemory};

/// The error for an access that is outside the mapping or not aligned, or that writes to a
/// read-only mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot access {bytes} bytes at offset {offset:#x} of memory that this process has mapped: the \
     access ends outside the mapped range, is not aligned, or writes to memory mapped read-only"
)]
pub struct RangeError {
    /// Offset in the mapping at which the refused access begins.
    pub offset: u64,
    /// Length of the access in bytes.
    pub bytes: u64,
}

/// A range of a [`SharedMemory`] that is mapped into this process. Dropping it unmaps the range.
/// Guests and other processes may write the memory at any time.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
    /// Whether the drop unmaps the addresses.
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
        let fail = MemoryError::map(bytes);
        let length = usize::try_from(bytes).map_err(|_| fail(rustix::io::Errno::NOMEM))?;
        let base = reserve_aligned(length, memory.pages()).map_err(&fail)?;
        // SAFETY: the range was just reserved by us and nobody else knows it; MAP_FIXED replaces
        // exactly it.
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

    /// Maps a range of `memory` at `address`, where nothing may be mapped.
    pub(crate) fn new_at(
        address: u64,
        memory: &SharedMemory,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let fail = MemoryError::map(bytes);
        let length = usize::try_from(bytes).map_err(|_| fail(rustix::io::Errno::NOMEM))?;
        let address = usize::try_from(address).map_err(|_| fail(rustix::io::Errno::NOMEM))?;
        // SAFETY: MAP_FIXED_NOREPLACE changes no mapping that exists.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::without_provenance_mut(address),
                length,
                protection(access),
                MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE,
                memory.file(),
                offset,
            )
        };
        let base = base.map_err(&fail)?.cast::<u8>();
        let mapping = Self {
            base: NonNull::new(base).ok_or(fail(rustix::io::Errno::NOMEM))?,
            bytes: length,
            writable: access == Access::ReadWrite,
            owned: true,
        };
        // Linux before 4.17 takes the address as a wish.
        match base.addr() == address {
            true => Ok(mapping),
            false => Err(fail(rustix::io::Errno::EXIST)),
        }
    }

    /// Returns a mapping of the `bytes` bytes at address `base`, which is page-aligned. The mapping
    /// can be written only if `access` includes writing. The caller must have mapped the range with
    /// these rights, and must unmap it after the returned mapping is dropped.
    ///
    /// # Safety
    /// Until the returned mapping is dropped, no code may unmap the range, take the rights of
    /// `access` from it, or create a Rust reference to its content, because users of the mapping
    /// and other processes read and write the content at any time.
    pub unsafe fn borrow(base: NonNull<u8>, bytes: usize, access: Access) -> Self {
        Self {
            base,
            bytes,
            writable: access == Access::ReadWrite,
            owned: false,
        }
    }

    /// Returns the size of the mapping in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the address of the first byte. Callers may only access the [`Self::bytes`] bytes of
    /// the mapping while it lives, by volatile or atomic accesses, and must not write a read-only
    /// mapping.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Allocates the pages of the whole mapping now instead of at their first access.
    ///
    /// # Errors
    /// [`MemoryError::Populate`] if the host has not enough memory.
    pub fn populate(&self) -> Result<(), MemoryError> {
        let advice = if self.writable {
            Advice::LinuxPopulateWrite
        } else {
            Advice::LinuxPopulateRead
        };
        // SAFETY: the range is ours.
        unsafe { populate(self.base.as_ptr(), self.bytes(), advice) }
    }

    /// Makes the kernel allocate 4 KiB pages instead of 2 MiB pages for the first `bytes` bytes of
    /// this mapping. `bytes` is a multiple of 4 KiB, at most the mapping's size. This is faster if
    /// only a few places are accessed, because the kernel zeroes each page at its first access.
    ///
    /// # Errors
    /// [`MemoryError::Map`] if the kernel refuses; it then allocates pages of the object's page
    /// size.
    pub fn begin_with_small_pages(&self, bytes: u64) -> Result<(), MemoryError> {
        let length = usize::try_from(bytes).map_or(self.bytes, |bytes| bytes.min(self.bytes));
        // SAFETY: the advice changes no content, and the range is ours.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), length, Advice::LinuxNoHugepage) }
            .map_err(MemoryError::map(bytes))
    }

    /// Copies `into.len()` bytes from `offset` of the mapping to `into`. The copy may or may not
    /// contain what other processes write meanwhile.
    ///
    /// # Errors
    /// [`RangeError`] if the range is not within the mapping; then nothing was copied.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), RangeError> {
        let source = self.at(offset, into.len() as u64)?;
        // SAFETY: `at` checked the range; the destination is ours alone. The copy goes through a C
        // function that the compiler cannot look into, so racing writers yield stale bytes, not
        // assumptions.
        unsafe { volatile_copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` to `offset` of the mapping.
    ///
    /// # Errors
    /// [`RangeError`] if the range is not within the mapping or the mapping is read-only; then
    /// nothing was copied.
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

    /// Loads the 32-bit word at `offset` of the mapping, with memory ordering `order`.
    ///
    /// # Errors
    /// [`RangeError`] if the word is not aligned or not within the mapping.
    pub fn load_u32(&self, offset: u64, order: Ordering) -> Result<u32, RangeError> {
        Ok(self.word::<AtomicU32>(offset)?.load(order))
    }

    /// Loads the 64-bit word at `offset` of the mapping, with memory ordering `order`.
    ///
    /// # Errors
    /// [`RangeError`] if the word is not aligned or not within the mapping.
    pub fn load_u64(&self, offset: u64, order: Ordering) -> Result<u64, RangeError> {
        Ok(self.word::<AtomicU64>(offset)?.load(order))
    }

    /// Stores `value` as the 64-bit word at `offset` of the mapping, with memory ordering `order`.
    ///
    /// # Errors
    /// [`RangeError`] if the word is not aligned, not within the mapping, or the mapping is
    /// read-only.
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
        // SAFETY: in range and aligned (the base is page-aligned); T is an atomic, so others may
        // write it.
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
            log::error!(
                "cannot unmap {bytes} bytes of shared memory, which stay mapped until this process \
                 ends: {e}",
                bytes = self.bytes
            );
        }
    }
}

/// Copies between shared memory and memory of our own, opaque to the compiler.
///
/// # Safety
/// Both ranges are valid for `bytes` bytes, and do not overlap.
unsafe fn volatile_copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract. The assembly block keeps the optimizer from merging or
    // repeating accesses.
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

/// Allocates or maps the pages of a range now, without changing their content.
///
/// # Safety
/// The range is mapped by the caller.
pub(crate) unsafe fn populate(
    base: *mut u8,
    bytes: u64,
    advice: Advice,
) -> Result<(), MemoryError> {
    // SAFETY: by this function's contract.
    unsafe { rustix::mm::madvise(base.cast(), bytes as usize, advice) }.map_err(|e| {
        MemoryError::Populate {
            bytes,
            source: e.into(),
        }
    })
}

/// Returns the protection bits of `mmap` for access rights.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PAGE_BYTES, SharedMemory};

    const BYTES: u64 = 4 * PAGE_BYTES;

    fn mapped(access: Access) -> (SharedMemory, Mapping) {
        let memory = SharedMemory::new("test", BYTES, PageSize::Small).unwrap();
        let mapping = memory.map(0, BYTES, access).unwrap();
        (memory, mapping)
    }

    fn used_bytes(memory: &SharedMemory) -> u64 {
        rustix::fs::fstat(memory.file()).unwrap().st_blocks as u64 * 512
    }

    #[test]
    fn accesses_end_with_the_mapping() {
        let (_memory, mapping) = mapped(Access::ReadWrite);
        assert_eq!(mapping.bytes(), BYTES);
        mapping.write(BYTES - 8, &[7; 8]).unwrap();
        let mut seen = [0; 8];
        mapping.read(BYTES - 8, &mut seen).unwrap();
        assert_eq!(seen, [7; 8]);
        for offset in [BYTES - 7, BYTES, u64::MAX - 3] {
            let refused = RangeError { offset, bytes: 8 };
            assert_eq!(mapping.write(offset, &[1; 8]).unwrap_err(), refused);
            assert_eq!(mapping.read(offset, &mut seen).unwrap_err(), refused);
            assert_eq!(seen, [7; 8], "nothing was copied");
        }
    }

    #[test]
    fn words_are_loaded_and_stored_where_they_are_aligned() {
        let (_memory, mapping) = mapped(Access::ReadWrite);
        let order = Ordering::SeqCst;
        mapping.store_u64(8, 0x1122_3344_5566_7788, order).unwrap();
        assert_eq!(mapping.load_u64(8, order).unwrap(), 0x1122_3344_5566_7788);
        assert_eq!(mapping.load_u32(8, order).unwrap(), 0x5566_7788);
        assert_eq!(mapping.load_u32(12, order).unwrap(), 0x1122_3344);
        for offset in [4, BYTES, BYTES - 4] {
            let refused = RangeError { offset, bytes: 8 };
            assert_eq!(mapping.load_u64(offset, order).unwrap_err(), refused);
            assert_eq!(mapping.store_u64(offset, 1, order).unwrap_err(), refused);
        }
        for offset in [2, BYTES] {
            let refused = RangeError { offset, bytes: 4 };
            assert_eq!(mapping.load_u32(offset, order).unwrap_err(), refused);
        }
    }

    #[test]
    fn a_read_only_mapping_is_not_written() {
        let (_memory, mapping) = mapped(Access::Read);
        mapping.write(0, &[1]).unwrap_err();
        mapping.store_u64(0, 1, Ordering::SeqCst).unwrap_err();
        assert_eq!(mapping.load_u64(0, Ordering::SeqCst).unwrap(), 0);
    }

    #[test]
    fn populating_allocates_the_whole_mapping() {
        let (memory, mapping) = mapped(Access::ReadWrite);
        assert_eq!(used_bytes(&memory), 0);
        mapping.populate().unwrap();
        assert_eq!(used_bytes(&memory), BYTES);
        let (memory, mapping) = mapped(Access::Read);
        mapping.populate().unwrap();
        // Reading allocates pages of a file in memory, too.
        assert_eq!(used_bytes(&memory), BYTES);
    }

    #[test]
    fn a_reservation_is_aligned_and_keeps_all_its_addresses() {
        let large = LARGE_PAGE_BYTES as usize;
        for (bytes, pages) in [(3 << 12, PageSize::Small), (large + 4096, PageSize::Large)] {
            let base = reserve_aligned(bytes, pages).unwrap();
            assert!(pages == PageSize::Small || base.addr().get().is_multiple_of(large));
            for offset in [0, bytes - 4096] {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
                // SAFETY: the flag changes no mapping that exists.
                let taken = unsafe {
                    let address = base.as_ptr().add(offset).cast();
                    rustix::mm::mmap_anonymous(address, 4096, ProtFlags::empty(), flags)
                };
                assert_eq!(taken.unwrap_err(), rustix::io::Errno::EXIST);
            }
            // SAFETY: nobody else knows of the reservation.
            unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) }.unwrap();
        }
    }

    #[test]
    fn a_borrowed_mapping_is_left_to_its_owner() {
        let (_memory, mapping) = mapped(Access::ReadWrite);
        for access in [Access::Read, Access::ReadWrite] {
            // SAFETY: the owner outlives the borrowed mapping, which nobody else uses.
            let borrowed = unsafe { Mapping::borrow(mapping.as_ptr(), BYTES as usize, access) };
            let written = borrowed.write(0, &[1]);
            assert_eq!(written.is_ok(), access == Access::ReadWrite);
        }
        assert_eq!(mapping.load_u32(0, Ordering::SeqCst).unwrap(), 1);
    }
}
