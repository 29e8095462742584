//! Short time slices for threads that wait for guests.
//!
//! A thread with a shorter slice than the running one preempts it when it wakes, if it has not had
//! more than its share of the processor (`PREEMPT_SHORT` in `kernel/sched/fair.c`). Linux takes
//! slices of ordinary threads since version 6.12, without a privilege, and ignores them before.
#![allow(unsafe_code)] // The system calls have no safe form.

use std::io;
use std::time::Duration;

/// Shortest slice that Linux accepts (`sched_setattr`, `kernel/sched/syscalls.c`). It raises
/// shorter ones to this.
pub const SLICE_MIN: Duration = Duration::from_micros(100);

/// Sets the time slice of the calling thread, 100 µs to 100 ms. The thread keeps its policy and
/// niceness.
///
/// # Errors
/// The error of sched_getattr(2) or sched_setattr(2), such as `EPERM` in a container that forbids
/// the calls.
pub fn set_slice(slice: Duration) -> io::Result<()> {
    let mut attributes = attributes()?;
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the structure lives until the call returns, and says how large it is.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the time slice of the calling thread; zero on a kernel that has one slice for all.
///
/// # Errors
/// The error of sched_getattr(2).
pub fn slice() -> io::Result<Duration> {
    attributes().map(|attributes| Duration::from_nanos(attributes.sched_runtime))
}

fn attributes() -> io::Result<libc::sched_attr> {
    let bytes = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the structure has integers only, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let into = &raw mut attributes;
    // SAFETY: the structure has as many bytes as the call may write, and lives until it returns.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, into, bytes, 0) };
    match failed {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_slice_that_it_has_set_and_others_keep_theirs() {
        let before = slice().unwrap();
        let inside = std::thread::spawn(|| {
            set_slice(SLICE_MIN).unwrap();
            slice().unwrap()
        });
        // Linux before 6.12 accepts a slice, and has none.
        let inside = inside.join().unwrap();
        assert!(inside == SLICE_MIN || inside.is_zero(), "{inside:?}");
        assert_eq!(slice().unwrap(), before);
    }
}
