//! Mappings of a function's memory.
#![allow(unsafe_code)] // Maps device memory.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use causeway_shim::Window;
use rustix::mm::{MapFlags, ProtFlags};

/// A range of a function's memory in this process, until dropped.
#[derive(Debug)]
pub struct DeviceFile {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; it is reached through windows alone, whose rules allow any thread.
unsafe impl Send for DeviceFile {}
// SAFETY: as above.
unsafe impl Sync for DeviceFile {}

impl DeviceFile {
    /// Maps `bytes` bytes of `file` from `offset`.
    pub fn map(file: impl AsFd, offset: u64, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, bytes })
    }

    /// The memory.
    pub fn window(&self) -> Window {
        // SAFETY: mapped as long as the transport lives, which the shim borrows. It is a device's: no references are made
        // to it, and the device defines what any access does.
        unsafe { Window::new(self.base, self.bytes) }
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and windows on it do not outlive the transport.
        if let Err(e) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) } {
            log::error!("cannot unmap {} bytes of the device: {e}", self.bytes);
        }
    }
}
