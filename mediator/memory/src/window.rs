//! Reserved host addresses, in which memory is placed and removed.

use std::ptr::NonNull;

use causeway_protocol::Access;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::mapping::{populate, protection, reserve_aligned};
use crate::{MemoryError, PageSize, SharedMemory, check_range};

/// A range of host addresses, reserved until dropped, in which memory objects are placed and
/// removed. Addresses at which nothing is placed cannot be accessed.
///
/// A KVM memory slot may cover the window while objects are placed and removed. The kernel informs
/// KVM of each change, and KVM then drops its translations for the changed range only.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a window is an address range; it is never dereferenced here.
unsafe impl Send for Window {}
// SAFETY: as above; placing and removing are system calls, which are atomic to each other.
unsafe impl Sync for Window {}

impl Window {
    /// Reserves `bytes` bytes of host addresses, which begin at a multiple of 2 MiB.
    ///
    /// # Errors
    /// [`MemoryError::Map`] if the process has no free address range of that size.
    pub fn reserve(bytes: u64) -> Result<Self, MemoryError> {
        let fail = MemoryError::map(bytes);
        let length = usize::try_from(bytes).map_err(|_| fail(rustix::io::Errno::NOMEM))?;
        let base = reserve_aligned(length, PageSize::Large).map_err(fail)?;
        Ok(Self {
            base,
            bytes: length,
        })
    }

    /// Returns the size of the window in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the first address of the window, for the KVM memory slot that covers it. Code of
    /// this process may access only a range that it has placed itself, by volatile or atomic
    /// accesses, because all other content of the window may be removed at any time.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Places `bytes` bytes of `memory`, from its byte `memory_offset`, at `offset` of the window,
    /// with the rights `access`. What was placed in that range before is replaced. Offsets and size
    /// must be multiples of 4 KiB. Pages of 2 MiB are mapped as a whole only if the two offsets
    /// differ by a multiple of 2 MiB.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is empty or not within the object or the window,
    /// [`MemoryError::Map`] if the kernel refuses the mapping.
    pub fn place(
        &self,
        offset: u64,
        memory: &SharedMemory,
        memory_offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), MemoryError> {
        check_range(memory_offset, bytes, memory.bytes())?;
        let address = self.at(offset, bytes)?;
        // SAFETY: the range lies within our reservation; by the contract of `as_ptr` nobody counts
        // on its content.
        unsafe {
            rustix::mm::mmap(
                address.cast(),
                bytes as usize,
                protection(access),
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                memory.file(),
                memory_offset,
            )
        }
        .map(drop)
        .map_err(MemoryError::map(bytes))
    }

    /// Maps the pages of the `bytes` bytes at `offset` of the window now instead of at their first
    /// access, so that a guest's first access takes less time. `access` must be the rights with
    /// which [`Self::place`] has placed the range.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is not within the window, [`MemoryError::Populate`] if
    /// the host has not enough memory.
    pub fn populate(&self, offset: u64, bytes: u64, access: Access) -> Result<(), MemoryError> {
        let advice = match access {
            Access::None => return Ok(()),
            Access::Read => rustix::mm::Advice::LinuxPopulateRead,
            Access::ReadWrite => rustix::mm::Advice::LinuxPopulateWrite,
        };
        let address = self.at(offset, bytes)?;
        // SAFETY: the range is ours.
        unsafe { populate(address, bytes, advice) }
    }

    /// Removes everything that is placed in the `bytes` bytes at `offset` of the window; the
    /// addresses stay reserved.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is not within the window, [`MemoryError::Map`] if the
    /// kernel cannot remove the mapping. In the latter case the memory stays mapped, but its access
    /// rights are removed if the kernel permits that.
    pub fn clear(&self, offset: u64, bytes: u64) -> Result<(), MemoryError> {
        let address = self.at(offset, bytes)?;
        // SAFETY: as in `place`.
        unsafe {
            rustix::mm::mmap_anonymous(
                address.cast(),
                bytes as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        }
        .map(drop)
        .map_err(|e| {
            self.forbid(address, bytes);
            MemoryError::map(bytes)(e)
        })
    }

    /// Takes the access rights from a range that cannot be removed: a process with the most
    /// mappings that it may have (`vm.max_map_count`) gets no new one in its place, but can change
    /// those it has.
    fn forbid(&self, address: *mut u8, bytes: u64) {
        let none = MprotectFlags::empty();
        // SAFETY: as in `place`; nothing is counted on there.
        if let Err(e) = unsafe { rustix::mm::mprotect(address.cast(), bytes as usize, none) } {
            log::error!(
                "cannot unmap {bytes} bytes of a guest's aperture or revoke access to them, so the \
                 guest may still access them: {e}"
            );
        }
    }

    fn at(&self, offset: u64, bytes: u64) -> Result<*mut u8, MemoryError> {
        check_range(offset, bytes, self.bytes())?;
        // SAFETY: the offset is within the reservation.
        Ok(unsafe { self.base.as_ptr().add(offset as usize) })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the range is ours; memory slots over it are removed before the window is dropped.
        if let Err(e) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) } {
            log::error!(
                "cannot free {bytes} bytes of this process's virtual addresses, which are reserved \
                 for a guest's aperture, so they stay reserved until this process ends: {e}",
                bytes = self.bytes
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LARGE_PAGE_BYTES, PAGE_BYTES};

    #[test]
    fn what_is_placed_is_the_objects_memory_and_what_is_cleared_is_gone() {
        let memory = SharedMemory::new("test", 4 * PAGE_BYTES, PageSize::Small).unwrap();
        let own = memory.map(0, 4 * PAGE_BYTES, Access::ReadWrite).unwrap();
        own.write(PAGE_BYTES, b"causeway").unwrap();
        let window = Window::reserve(LARGE_PAGE_BYTES).unwrap();
        window
            .place(
                8 * PAGE_BYTES,
                &memory,
                PAGE_BYTES,
                PAGE_BYTES,
                Access::Read,
            )
            .unwrap();
        // SAFETY: the placement is in range, live, and read by one volatile load.
        let byte = unsafe { window.as_ptr().add(8 * PAGE_BYTES as usize).read_volatile() };
        assert_eq!(byte, b'c');
        window.clear(8 * PAGE_BYTES, PAGE_BYTES).unwrap();
        window
            .populate(8 * PAGE_BYTES, PAGE_BYTES, Access::Read)
            .unwrap_err();
    }

    /// More in all than a process has addresses.
    #[test]
    fn the_addresses_of_windows_that_are_gone_are_free() {
        for _ in 0..200 {
            Window::reserve(1 << 40).unwrap();
        }
    }

    #[test]
    fn ranges_outside_are_refused_with_their_numbers() {
        let memory = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
        let window = Window::reserve(LARGE_PAGE_BYTES).unwrap();
        for (offset, from, bytes) in [
            (LARGE_PAGE_BYTES, 0, PAGE_BYTES),
            (u64::MAX - 4095, 0, PAGE_BYTES),
            (0, PAGE_BYTES, PAGE_BYTES),
            (0, u64::MAX - 4095, 2 * PAGE_BYTES),
            (0, 0, 0),
        ] {
            assert!(
                matches!(
                    window.place(offset, &memory, from, bytes, Access::Read),
                    Err(MemoryError::Range { .. })
                ),
                "{offset:#x} {from:#x} {bytes:#x}"
            );
        }
    }

    #[test]
    fn large_pages_are_aligned_and_zero() {
        let memory = SharedMemory::new("test", 2 * LARGE_PAGE_BYTES, PageSize::Large).unwrap();
        let mapping = memory
            .map(0, 2 * LARGE_PAGE_BYTES, Access::ReadWrite)
            .unwrap();
        mapping.populate().unwrap();
        if memory.pages() == PageSize::Large {
            assert!((mapping.as_ptr().as_ptr() as u64).is_multiple_of(LARGE_PAGE_BYTES));
        }
        let mut bytes = vec![1; 4096];
        mapping.read(LARGE_PAGE_BYTES, &mut bytes).unwrap();
        assert!(bytes.iter().all(|b| *b == 0));
    }

    #[test]
    fn a_mapping_that_begins_with_small_pages_takes_no_large_one_for_a_byte() {
        let memory = SharedMemory::new("test", 4 * LARGE_PAGE_BYTES, PageSize::Large).unwrap();
        if memory.pages() == PageSize::Small {
            eprintln!("skipped: no large pages here");
            return;
        }
        let mapping = memory
            .map(0, 4 * LARGE_PAGE_BYTES, Access::ReadWrite)
            .unwrap();
        mapping
            .begin_with_small_pages(2 * LARGE_PAGE_BYTES)
            .unwrap();
        let used = || rustix::fs::fstat(memory.file()).unwrap().st_blocks as u64 * 512;
        mapping.write(LARGE_PAGE_BYTES, &[1]).unwrap();
        assert_eq!(used(), PAGE_BYTES);
        mapping.write(2 * LARGE_PAGE_BYTES, &[1]).unwrap();
        assert_eq!(used(), PAGE_BYTES + LARGE_PAGE_BYTES);
    }
}
