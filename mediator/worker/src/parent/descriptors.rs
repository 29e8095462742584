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

#[cfg(test)]
mod tests {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;
    use crate::tests::rig::is_alone_at;

    #[test]
    fn descriptors_are_marked() {
        // Other tests hand descriptors to the processes that they start.
        if !is_alone_at("parent::descriptors::tests::descriptors_are_marked") {
            return;
        }
        let (reader, _writer) = io::pipe().unwrap();
        fcntl_setfd(&reader, FdFlags::empty()).unwrap();
        keep().unwrap();
        assert_eq!(fcntl_getfd(&reader).unwrap(), FdFlags::CLOEXEC);
    }
}
