//! I/O ports of the machine, which a process of root may use.
#![allow(unsafe_code)] // The right to use a port, and the instructions, have no safe form.

use std::arch::asm;
use std::io;

/// Size of an access in bytes.
const BYTES: u16 = 4;

/// I/O ports that this thread may access, four bytes at a time. The Linux kernel gives the right to
/// a thread; threads that it starts later inherit it.
///
/// Ports reach whatever device the machine has there. Use only ports of a device that is known to
/// be in the machine.
#[derive(Debug)]
pub struct IoPorts {
    first: u16,
    count: u16,
}

impl IoPorts {
    /// Asks the Linux kernel for the right to use `count` ports from `first` on. This causes no VM
    /// exit.
    ///
    /// # Errors
    /// The error of ioperm(2), such as `EPERM` if the process is not root's.
    pub fn open(first: u16, count: u16) -> io::Result<Self> {
        // SAFETY: gives rights to ports; touches no memory.
        match unsafe { libc::ioperm(first.into(), count.into(), 1) } {
            0 => Ok(Self { first, count }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Stores `value` to `port`, which is one VM exit.
    ///
    /// # Panics
    /// If the four ports from `port` on are not all among those that were opened.
    pub fn write(&self, port: u16, value: u32) {
        self.check(port);
        // SAFETY: `open` has obtained the right. The device may change memory in answer, as an asm
        // block may that is not marked otherwise.
        unsafe {
            asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags));
        }
    }

    /// Loads from `port`, which is one VM exit. The result is all-ones if no device has the port.
    ///
    /// # Panics
    /// If the four ports from `port` on are not all among those that were opened.
    pub fn read(&self, port: u16) -> u32 {
        self.check(port);
        let value;
        // SAFETY: as in `write`.
        unsafe {
            asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags));
        }
        value
    }

    fn check(&self, port: u16) {
        let offset = port.checked_sub(self.first);
        let inside = offset.is_some_and(|offset| offset + BYTES <= self.count);
        assert!(inside, "port {port:#x} is not among the ports of {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "port 0xcb2 is not among the ports")]
    fn a_port_that_was_not_opened_is_not_touched() {
        let ports = IoPorts {
            first: 0xcac,
            count: 8,
        };
        ports.check(0xcb0);
        ports.write(0xcb2, 0);
    }
}
