//! Machine code that this process makes and executes.

use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, write};
use rustix::mm::{MapFlags, ProtFlags};

use crate::MemoryError;

/// Machine code in memory that can be executed and that nobody can write: no mapping of it was
/// ever writable, and its seals forbid new ones. Dropping it unmaps it.
#[derive(Debug)]
pub struct CodeMapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range that is only read and executed.
unsafe impl Send for CodeMapping {}
// SAFETY: as above.
unsafe impl Sync for CodeMapping {}

impl CodeMapping {
    /// Maps a copy of `code`.
    ///
    /// # Errors
    /// If `code` is empty, or the kernel has no memory or allows no code: a filter of system calls
    /// may refuse it.
    pub fn new(code: &[u8]) -> Result<Self, MemoryError> {
        let fail = MemoryError::map(code.len() as u64);
        let file = rustix::fs::memfd_create(
            "causeway-code",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        );
        let file = file.map_err(&fail)?;
        let mut left = code;
        while !left.is_empty() {
            let written = write(&file, left).map_err(&fail)?;
            left = &left[written..];
        }
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(&fail)?;
        // SAFETY: a new range, which nobody else knows.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                code.len(),
                ProtFlags::READ | ProtFlags::EXEC,
                MapFlags::PRIVATE,
                &file,
                0,
            )
        };
        let base = NonNull::new(base.map_err(&fail)?.cast()).ok_or(fail(Errno::NOMEM))?;
        Ok(Self {
            base,
            bytes: code.len(),
        })
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the size of the code in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for CodeMapping {
    fn drop(&mut self) {
        // SAFETY: this mapped the range; who executes code of it borrows the mapping.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_can_be_executed() {
        // mov eax, 42; ret
        let code = CodeMapping::new(&[0xb8, 42, 0, 0, 0, 0xc3]).unwrap();
        // SAFETY: these instructions are a function without parameters that returns an i32.
        let answer = unsafe {
            std::mem::transmute::<*mut u8, extern "sysv64" fn() -> i32>(code.as_ptr().as_ptr())
        };
        assert_eq!(answer(), 42);
        assert_eq!(code.bytes(), 6);
    }

    #[test]
    fn there_is_no_empty_code() {
        assert!(CodeMapping::new(&[]).is_err());
    }
}
