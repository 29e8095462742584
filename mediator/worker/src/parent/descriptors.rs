//! Descriptors of the VMM, none of which a worker is to have but those that it is sent.
#![allow(unsafe_code)] // A system call that has no wrapper here.

use std::io;

/// Has no program that is started from now on inherit any of the descriptors that are open now, but for standard input
/// and output. Those that were opened here are not inherited anyway; a graphics driver may open its own otherwise, and
/// by them a worker could reach what the VMM has of other guests.
///
/// # Errors
/// What the kernel said: `close_range` can do this since Linux 5.11.
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
