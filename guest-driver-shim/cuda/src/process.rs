//! Whether this is still the process that initialized the driver. Every call asks, so that a forked
//! child gets an error and does not write into its parent's ring.

use std::sync::atomic::{AtomicU32, Ordering};

/// Size of the page with the mark, in bytes.
const PAGE_BYTES: usize = 4096;
const MARK: u32 = 1;

/// The process that made this value.
pub(crate) struct Process {
    /// A word that is [`MARK`] in the process, and zero in its children: the kernel clears the page
    /// for them. `None` if the kernel cannot (before Linux 4.14).
    mark: Option<&'static AtomicU32>,
    id: u32,
}

impl Process {
    /// Returns the calling process.
    pub(crate) fn current() -> Self {
        Self {
            mark: mark(),
            id: std::process::id(),
        }
    }

    /// Returns whether the caller is this process. One load: a system call takes as long as all the
    /// rest of a launch.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        match self.mark {
            Some(mark) => mark.load(Ordering::Relaxed) == MARK,
            None => self.id == std::process::id(),
        }
    }
}

fn mark() -> Option<&'static AtomicU32> {
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is this function's own.
    if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: nobody else knows the mapping.
        unsafe { libc::munmap(page, PAGE_BYTES) };
        return None;
    }
    // SAFETY: the page is aligned, zeroed and stays mapped from now on.
    let mark = unsafe { &*page.cast::<AtomicU32>() };
    mark.store(MARK, Ordering::Relaxed);
    Some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a forked child takes itself for `process`.
    fn child_is(process: &Process) -> bool {
        // SAFETY: the child only looks at memory, makes a system call, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_same = process.is_current();
            // SAFETY: ends the child without running anything of its parent.
            unsafe { libc::_exit(i32::from(is_same)) };
        }
        let mut status = 0;
        // SAFETY: the status is written to a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) != 0
    }

    #[test]
    fn a_forked_child_is_another_process() {
        let process = Process::current();
        let without_mark = Process {
            mark: None,
            id: process.id,
        };
        for process in [&process, &without_mark] {
            assert!(process.is_current());
            assert!(!child_is(process));
            assert!(process.is_current());
        }
    }
}
