//! Machine code that this process makes and executes.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr, write};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::MemoryError;

/// Machine code that is not finished, in a file without a name.
#[derive(Debug)]
pub struct CodeFile {
    file: OwnedFd,
    bytes: usize,
}

impl CodeFile {
    /// Creates the file.
    ///
    /// # Errors
    /// If the process has no descriptor left, or the kernel no memory.
    pub fn new() -> Result<Self, MemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("causeway-code", flags).map_err(MemoryError::map(0))?;
        Ok(Self { file, bytes: 0 })
    }

    /// Adds code at the end.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn append(&mut self, code: &[u8]) -> Result<(), MemoryError> {
        let mut left = code;
        while !left.is_empty() {
            let written = retry_on_intr(|| write(&self.file, left));
            left = &left[written.map_err(MemoryError::map(code.len() as u64))?..];
        }
        self.bytes += code.len();
        Ok(())
    }

    /// Maps the code, which nobody can change any more.
    ///
    /// # Errors
    /// If there is none, or the kernel has no memory or allows no code: a filter of system calls
    /// may refuse it.
    pub fn map(self) -> Result<CodeMapping, MemoryError> {
        let fail = MemoryError::map(self.bytes as u64);
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&self.file, seals).map_err(&fail)?;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new range, which nobody else knows.
        let base = unsafe { mmap(anywhere, self.bytes, rights, flags, &self.file, 0) };
        let base = NonNull::new(base.map_err(&fail)?.cast()).ok_or(fail(Errno::NOMEM))?;
        Ok(CodeMapping {
            base,
            bytes: self.bytes,
        })
    }
}

/// Machine code in memory that can be executed. No mapping of it was ever writable, and no
/// descriptor of its file is left. Dropping it unmaps it.
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
    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for CodeMapping {
    fn drop(&mut self) {
        // SAFETY: this mapped the range; who executes code of it borrows the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line about `code` in the list of this process's mappings; empty without one.
    fn rights(code: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let begins = |line: &&str| line.starts_with(&format!("{code:x}-"));
        maps.lines().find(begins).unwrap_or_default().to_owned()
    }

    #[test]
    fn code_can_be_executed_until_it_is_dropped() {
        let mut file = CodeFile::new().unwrap();
        // mov eax, 42; ret
        file.append(&[0xb8, 42, 0]).unwrap();
        file.append(&[0, 0, 0xc3]).unwrap();
        let code = file.map().unwrap();
        // SAFETY: these instructions are a function without parameters that returns an i32.
        let answer = unsafe {
            std::mem::transmute::<*mut u8, extern "sysv64" fn() -> i32>(code.as_ptr().as_ptr())
        };
        assert_eq!(answer(), 42);
        let at = code.as_ptr().as_ptr() as usize;
        assert!(rights(at).contains(" r-xp "), "{}", rights(at));
        drop(code);
        assert!(!rights(at).contains("causeway-code"), "{}", rights(at));
    }

    #[test]
    fn there_is_no_empty_code() {
        assert!(CodeFile::new().unwrap().map().is_err());
    }
}
