//! Memory of the process for DMA of a device, which needs the physical address.
#![allow(unsafe_code)] // Maps memory and locks it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use causeway_shim::Window;

use crate::edu::{DmaMemory, PAGE_BYTES, TRANSFER_BYTES};

/// Fields of an entry of pagemap: whether the page is present, and the number of its frame
/// (Documentation/admin-guide/mm/pagemap.rst of Linux).
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
const ENTRY_BYTES: u64 = 8;

/// Returns a page that stays in memory, with its physical address. The page is never freed.
///
/// # Errors
/// The error of the Linux kernel; or one that says that the physical address has more than 32 bits,
/// or that it is hidden from this process.
pub fn dma_page() -> io::Result<DmaMemory> {
    let base = locked_page()?;
    // SAFETY: mapped, and never unmapped; nobody makes a reference to it.
    let window = unsafe { Window::new(base, TRANSFER_BYTES) };
    let number = base.as_ptr() as u64 / PAGE_BYTES as u64;
    let mut entry = [0; ENTRY_BYTES as usize];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, number * ENTRY_BYTES)?;
    let entry = u64::from_le_bytes(entry);
    let address = (entry & FRAME) * PAGE_BYTES as u64;
    match u32::try_from(address) {
        Ok(address) if address != 0 && entry & PRESENT != 0 => Ok(DmaMemory { window, address }),
        _ => Err(io::Error::other(format!(
            "a page for DMA has no physical address below 4 GiB, or it is hidden: its entry in \
             /proc/self/pagemap is {entry:#x}"
        ))),
    }
}

fn locked_page() -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_LOCKED | libc::MAP_POPULATE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    // A store makes it a page of its own, and not the shared page of zeros.
    // SAFETY: mapped above for writing.
    unsafe { base.as_ptr().write_volatile(1) };
    Ok(base)
}
