//! Descriptors that a process has inherited.
#![allow(unsafe_code)] // Takes over descriptors by number.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::FdFlags;

/// Closes every descriptor that this process has inherited, apart from standard input, output and
/// error. What it has opened itself stays: that has the flag `FD_CLOEXEC`, as the standard library
/// sets it, and with this flag it could not have been inherited. A program calls this before it
/// loads libraries, which may open descriptors without the flag.
///
/// # Errors
/// The kernel's error, if `/proc/self/fd` cannot be read.
pub fn close_inherited() -> io::Result<()> {
    let names = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.filter(|number| *number > 2).collect();
    for number in numbers {
        // SAFETY: only asks for its flags. The descriptor of the folder itself is closed already.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(flags) = rustix::io::fcntl_getfd(descriptor) else {
            continue;
        };
        if !flags.contains(FdFlags::CLOEXEC) {
            // SAFETY: it came with the process, so nothing in it owns the descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::in_child;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_was_inherited_is_closed_and_what_was_opened_here_is_not() {
        let (inherited, own) = std::io::pipe().unwrap();
        rustix::io::fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
        let is_open = |number: RawFd| fs::exists(format!("/proc/self/fd/{number}"));
        in_child(|| {
            close_inherited()?;
            let open = (is_open(inherited.as_raw_fd())?, is_open(own.as_raw_fd())?);
            match open {
                (false, true) => Ok(()),
                _ => Err(io::Error::other("the wrong ones are closed")),
            }
        })
        .unwrap();
        assert!(is_open(inherited.as_raw_fd()).unwrap(), "here it stays");
    }
}
