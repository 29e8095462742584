//! A port of the machine, which a process may use if it is root.
#![allow(unsafe_code)] // The right to a port, and the instruction, have no safe form.

use std::arch::asm;
use std::io;

/// Bytes of a store.
const BYTES: u64 = 4;

/// A port for 4-byte stores.
#[derive(Debug)]
pub struct Port(u16);

impl Port {
    /// Asks the kernel for the right to a port. It is this thread's, and that of the threads it
    /// starts from now on.
    pub fn open(port: u16) -> io::Result<Self> {
        // SAFETY: gives rights to ports; touches no memory.
        match unsafe { libc::ioperm(port.into(), BYTES, 1) } {
            0 => Ok(Self(port)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Stores four bytes.
    pub fn write(&self, value: u32) {
        // SAFETY: whoever has a `Port` was given the right; what the device does to memory in
        // answer is what an asm block may do, which is not marked otherwise.
        unsafe {
            asm!("out dx, eax", in("dx") self.0, in("eax") value, options(nostack, preserves_flags));
        }
    }
}
