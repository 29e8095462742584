//! An I/O port of the machine, which a process of root may use.
#![allow(unsafe_code)] // The right to use a port, and the instruction, have no safe form.

use std::arch::asm;
use std::io;

/// Size of a store in bytes.
const BYTES: u64 = 4;

/// An I/O port that takes 4-byte stores.
#[derive(Debug)]
pub struct Port(u16);

impl Port {
    /// Asks the Linux kernel for the right to use `port`. This thread and the threads that it
    /// starts from now on have the right.
    ///
    /// # Errors
    /// The error of ioperm(2), such as `EPERM` if the process is not root's.
    pub fn open(port: u16) -> io::Result<Self> {
        // SAFETY: gives rights to ports; touches no memory.
        match unsafe { libc::ioperm(port.into(), BYTES, 1) } {
            0 => Ok(Self(port)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Stores `value` to the port.
    pub fn write(&self, value: u32) {
        // SAFETY: `open` has obtained the right. The device may change memory in answer, as an asm
        // block may that is not marked otherwise.
        unsafe {
            asm!("out dx, eax", in("dx") self.0, in("eax") value,
                 options(nostack, preserves_flags));
        }
    }
}
