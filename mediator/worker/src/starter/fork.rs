//! Starting a program as a child of this process's parent.
#![allow(unsafe_code)] // A child of another process is made by a bare system call.

use std::ffi::{CStr, c_char};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A process that was made.
pub(super) struct Forked {
    pub pid: u32,
    pub pidfd: OwnedFd,
    /// Why it has ended without executing the program; zero if it executes it.
    pub errno: i32,
}

/// Starts the program whose path and further arguments are `words`, with `input` as its standard
/// input and otherwise what this process has, as a child of this process's parent.
///
/// # Errors
/// What the kernel returned, if there is no process.
pub(super) fn start(words: &[&CStr], input: &OwnedFd) -> io::Result<Forked> {
    let mut arguments: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(std::ptr::null());
    // Closed by execve.
    let (mut reader, writer) = io::pipe()?;
    let mut descriptor: RawFd = -1;
    let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: without CLONE_VM and a stack it is fork(2): the new process has a copy of everything,
    // and runs on here. The kernel writes the pidfd to `descriptor`, which lives. `execute` calls
    // only what is allowed between fork and exec, and does not return.
    let pid = unsafe {
        let pid = libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            0_usize,
            &raw mut descriptor,
            0_usize,
            0_usize,
        );
        if pid == 0 {
            execute(&arguments, input.as_raw_fd(), writer.as_raw_fd());
        }
        pid
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has made it for this process, which knows of it here only.
    let pidfd = unsafe { OwnedFd::from_raw_fd(descriptor) };
    drop(writer);
    let mut errno = [0; 4];
    // Without an error it stays zero.
    let _ = reader.read(&mut errno)?;
    Ok(Forked {
        pid: u32::try_from(pid).map_err(io::Error::other)?,
        pidfd,
        errno: i32::from_ne_bytes(errno),
    })
}

/// Executes a program in a process that has just been forked, or ends the process after it has
/// written the error to `failed`.
///
/// # Safety
/// `arguments` must be pointers to strings that live, the first one a path, and end with null. No
/// other thread may use the memory of this process.
unsafe fn execute(arguments: &[*const c_char], input: RawFd, failed: RawFd) -> ! {
    // SAFETY: all of these may be called after fork(2), and the pointers are as the caller
    // promises.
    unsafe {
        // Clears FD_CLOEXEC: `input` is not 0, which this process has used for /dev/null.
        if libc::dup2(input, libc::STDIN_FILENO) >= 0 {
            libc::execv(arguments[0], arguments.as_ptr());
        }
        let errno = *libc::__errno_location();
        let bytes = errno.to_ne_bytes();
        libc::write(failed, bytes.as_ptr().cast(), bytes.len());
        libc::_exit(127)
    }
}
