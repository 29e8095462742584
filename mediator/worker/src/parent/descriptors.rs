//! Keeps the VMM's descriptors from its workers.
#![allow(unsafe_code)] // A system call that has no wrapper here.

use std::io;

/// Marks all open descriptors, apart from standard input, output and error, so that no program that
/// is started later inherits them. This program opens its own descriptors that way. Graphics
/// drivers may not, and through theirs a worker could reach the memory of other guests.
///
/// # Errors
/// What the kernel returned; `close_range` exists since Linux 5.11.
pub(super) fn keep() -> io::Result<()> {
    // SAFETY: only marks descriptors; closes none.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
