//! Reserved addresses of this process that play the aperture.
#![allow(unsafe_code)] // Maps memory at addresses of its own choice.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use causeway_protocol::Access;
use causeway_shim::Window;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Where a range is reserved if these addresses are free: below those that Linux gives to
/// libraries and stacks, and inside those that devices offer, so that memory can have one address
/// for CPU and GPU.
const PREFERRED_ADDRESS: usize = 0x2000_0000_0000;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// A range of this process's addresses, reserved for the aperture until this value is dropped. An
/// access to a part where no file is mapped ends the process (SIGSEGV).
#[derive(Debug)]
pub struct ReservedRange {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; it is never dereferenced here.
unsafe impl Send for ReservedRange {}
// SAFETY: as above; placing and removing are system calls, which are atomic to each other.
unsafe impl Sync for ReservedRange {}

impl ReservedRange {
    /// Reserves a range of `bytes` bytes of addresses, where nothing is mapped yet.
    pub fn reserve(bytes: u64) -> Result<Self, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        // SAFETY: a fresh mapping, which touches nothing that exists: the address is a wish.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::without_provenance_mut(PREFERRED_ADDRESS),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }

    /// Returns a window over the whole reserved range, through which the shim accesses the
    /// aperture.
    pub fn window(&self) -> Window {
        // SAFETY: the range is reserved as long as the transport lives, which the shim borrows;
        // nobody makes references to its content. A touch of what is not placed there ends the
        // process, as the documentation says.
        unsafe { Window::new(self.base, self.bytes) }
    }

    /// Maps `bytes` bytes of `file`, beginning at byte `from` of the file, at `offset` of the range
    /// with the rights `access`. This replaces what was mapped there.
    pub fn place(
        &self,
        offset: u64,
        bytes: u64,
        file: BorrowedFd<'_>,
        from: u64,
        access: Access,
    ) -> Result<(), Errno> {
        let address = self.at(offset, bytes)?;
        // SAFETY: the range lies within our reservation, on whose content nobody counts.
        unsafe {
            rustix::mm::mmap(
                address.cast(),
                bytes as usize,
                protection(access),
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                file,
                from,
            )
        }
        .map(drop)
    }

    /// Changes the access rights of the `bytes` bytes at `offset` of the range, where a file must
    /// be mapped, to `access`.
    pub fn set_access(&self, offset: u64, bytes: u64, access: Access) -> Result<(), Errno> {
        let address = self.at(offset, bytes)?;
        let flags = MprotectFlags::from_bits_retain(protection(access).bits());
        // SAFETY: as in `place`.
        unsafe { rustix::mm::mprotect(address.cast(), bytes as usize, flags) }
    }

    /// Unmaps the `bytes` bytes at `offset` of the range. The addresses stay reserved.
    pub fn remove(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
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
    }

    /// The address of a range of whole pages, which must lie within the reservation: it comes from
    /// another process.
    fn at(&self, offset: u64, bytes: u64) -> Result<*mut u8, Errno> {
        let end = offset.checked_add(bytes).ok_or(Errno::INVAL)?;
        let pages = (offset | bytes).is_multiple_of(PAGE_BYTES) && bytes != 0;
        if !pages || end > self.bytes as u64 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the offset is within the reservation.
        Ok(unsafe { self.base.as_ptr().add(offset as usize) })
    }
}

impl Drop for ReservedRange {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and windows on it do not outlive the transport.
        if let Err(e) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) } {
            log::error!(
                "cannot unmap {bytes} bytes of the Causeway device's aperture, which stay mapped \
                 until this process ends: {e}",
                bytes = self.bytes
            );
        }
    }
}

fn protection(access: Access) -> ProtFlags {
    match access {
        Access::None => ProtFlags::empty(),
        Access::Read => ProtFlags::READ,
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_placed_is_seen_and_ranges_outside_are_refused() {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 2 * PAGE_BYTES).unwrap();
        rustix::io::pwrite(&file, b"causeway", PAGE_BYTES).unwrap();
        let range = ReservedRange::reserve(1 << 30).unwrap();
        let last = (1 << 30) - PAGE_BYTES;
        range
            .place(
                last,
                PAGE_BYTES,
                file.as_fd(),
                PAGE_BYTES,
                Access::ReadWrite,
            )
            .unwrap();
        let mut bytes = [0; 8];
        range.window().read(last as usize, &mut bytes).unwrap();
        assert_eq!(&bytes, b"causeway");
        range.set_access(last, PAGE_BYTES, Access::Read).unwrap();
        range.remove(last, PAGE_BYTES).unwrap();
        for (offset, bytes) in [
            (1 << 30, PAGE_BYTES),
            (last, 2 * PAGE_BYTES),
            (u64::MAX - 4095, 2 * PAGE_BYTES),
            (1, PAGE_BYTES),
            (0, 1),
            (0, 0),
        ] {
            assert_eq!(
                range.remove(offset, bytes),
                Err(Errno::INVAL),
                "{offset:#x}+{bytes:#x}"
            );
        }
    }
}
