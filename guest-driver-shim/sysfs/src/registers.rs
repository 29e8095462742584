//! Mappings of a function's memory.
#![allow(unsafe_code)] // Maps device memory.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use causeway_shim::Window;
use rustix::mm::{MapFlags, ProtFlags};

/// Memory of a PCI function, mapped into this process until this value is dropped. Every load and
/// store goes to the device.
#[derive(Debug)]
pub struct Registers {
    /// Never handed out: it must not outlive the mapping.
    window: Window,
}

impl Registers {
    /// Maps the `bytes` bytes at `offset` of `file`, a file of the PCI function in sysfs. Both must
    /// be multiples of the page size.
    ///
    /// # Errors
    /// The Linux kernel's error, if it cannot map the file.
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
        // SAFETY: mapped until `drop`, and used by this mapping alone. It is a device's: no
        // references are made to it, and the device defines what any access does.
        let window = unsafe { Window::new(base, bytes) };
        Ok(Self { window })
    }

    /// Returns the size of the mapping in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.window.bytes()
    }

    /// Loads 32 bits at `offset`. Returns all-ones if `offset` is outside the mapping or not a
    /// multiple of 4.
    #[must_use]
    pub fn load(&self, offset: u64) -> u32 {
        self.window.load_u32(offset as usize).unwrap_or(u32::MAX)
    }

    /// Stores 32 bits at `offset`. Does nothing if `offset` is outside the mapping or not a
    /// multiple of 4.
    pub fn store(&self, offset: u64, value: u32) {
        let _ = self.window.store_u32(offset as usize, value);
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        let base = self.window.as_ptr().as_ptr();
        // SAFETY: mapped by `map`; the window on it goes with it.
        if let Err(e) = unsafe { rustix::mm::munmap(base.cast(), self.window.bytes()) } {
            log::error!(
                "cannot unmap {bytes} bytes of the Causeway device's BARs, which stay mapped until \
                 this process ends: {e}",
                bytes = self.bytes()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_reach_the_file_and_those_outside_do_nothing() {
        let file = rustix::fs::memfd_create("registers", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let registers = Registers::map(&file, 4096, 4096).unwrap();
        registers.store(8, 7);
        assert_eq!(registers.load(8), 7);
        let mut bytes = [0; 4];
        rustix::io::pread(&file, &mut bytes, 4096 + 8).unwrap();
        assert_eq!(bytes, [7, 0, 0, 0]);
        for offset in [9, 4094, 4096, u64::MAX - 3] {
            registers.store(offset, 1);
            assert_eq!(registers.load(offset), u32::MAX, "{offset:#x}");
        }
    }
}
