//! Port I/O.
#![allow(unsafe_code)] // Rights to ports, and the instruction, have no safe form.

use std::arch::asm;
use std::io;

use causeway_testdev_records::{Mark, PortStore};

use crate::console::say;

/// Stores four bytes to a port, if the kernel lets this process.
pub(crate) fn write_u32(port: u16, value: u32) -> io::Result<()> {
    // SAFETY: gives this thread the right to four ports; touches no memory.
    if unsafe { libc::ioperm(port.into(), 4, 1) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the right was given just now; what the port's device does to memory is what an asm
    // block may do.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags));
    }
    Ok(())
}

/// Makes a mark for the test device. On other machines than Causeway's, nothing answers at the
/// port.
pub(crate) fn mark(mark: Mark) {
    let PortStore { port, value } = mark.into();
    if let Err(error) = write_u32(port, value) {
        say(&format!("cannot mark {mark:?} for the host: {error}"));
    }
}
