//! Descriptors that a process has inherited, and room for its own.
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

/// Numbers of descriptors for which [`make_room`] makes room: 16 KiB of the kernel's memory.
const ROOM: RawFd = 2048;

/// Makes the kernel's table of this process's descriptors large, if the limit on descriptors allows
/// that. Call this while the process has one thread. The table of a process with several threads
/// grows slowly: the kernel first waits until no processor can be reading it (`expand_fdtable` in
/// `fs/file.c`), up to 20 ms each time on a host with 16 processors.
pub fn make_room() {
    // An error means that the table grows when it must.
    let _ = rustix::io::fcntl_dupfd_cloexec(io::stdin(), ROOM - 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::in_child;
    use std::os::fd::AsRawFd;

    #[test]
    fn there_is_room_where_the_limit_allows_it() {
        let room = || {
            let status = fs::read_to_string("/proc/self/status")?;
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.and_then(|size| size.trim().parse::<RawFd>().ok())
                .ok_or_else(|| io::Error::other("no FDSize"))
        };
        in_child(|| {
            use rustix::process::{Resource, getrlimit, setrlimit};
            let mut limit = getrlimit(Resource::Nofile);
            limit.current = limit.maximum;
            setrlimit(Resource::Nofile, limit)?;
            make_room();
            match room()? >= ROOM || limit.maximum.is_some_and(|most| most < ROOM as u64) {
                true => Ok(()),
                false => Err(io::Error::other("the table is small")),
            }
        })
        .unwrap();
    }

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
