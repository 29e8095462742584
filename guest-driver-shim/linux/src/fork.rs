//! A device stays with the process that opened it: children that the process forks close it.
#![allow(unsafe_code)] // `pthread_atfork` has no safe wrapper.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// Most open devices of one process. Children keep the descriptors of further ones.
const DEVICES_MAX: usize = 64;
const NONE: i32 = -1;

/// Descriptors that a forked child closes at once.
static DESCRIPTORS: [AtomicI32; DEVICES_MAX] = [const { AtomicI32::new(NONE) }; DEVICES_MAX];

/// The process that opened a device, and the file descriptor that connects the process to the
/// device. When all copies of the descriptor are closed, what the process owned on the device is
/// freed.
///
/// A forked child gets a copy of the descriptor, and closes this copy at once. Otherwise, nothing
/// would be freed when the parent ends before the child.
#[derive(Debug)]
pub struct Owner {
    pid: u32,
    descriptor: Option<OwnedFd>,
}

/// An access to a device by a process other than the one that opened it.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {0} cannot use the Causeway device that its parent process opened: it must open the \
     device itself"
)]
pub struct Forked(pub u32);

impl Owner {
    /// Makes this process the owner of `descriptor`. Children that it forks later close their
    /// copies of the descriptor.
    pub fn new(descriptor: OwnedFd) -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler is a function for all of the process's life, and makes only calls
            // that are async-signal-safe.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(close_in_child)) };
            if failed != 0 {
                log::warn!(
                    "cannot register a handler for forks, because pthread_atfork returned \
                     {failed}: forked child processes keep the Causeway device open, so the memory \
                     that this process allocated there is freed only when they have ended too"
                );
            }
        });
        let raw = descriptor.as_raw_fd();
        let free = DESCRIPTORS.iter().find(|slot| {
            slot.compare_exchange(NONE, raw, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        if free.is_none() {
            log::debug!("more than {DEVICES_MAX} open devices: forked children keep some open");
        }
        Self {
            pid: std::process::id(),
            descriptor: Some(descriptor),
        }
    }

    /// Returns the descriptor, or `None` if the calling process is not the owner.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.is_here().then_some(self.descriptor.as_ref()).flatten()
    }

    /// Returns whether the calling process is the owner.
    pub fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some(descriptor) = self.descriptor.take() else {
            return;
        };
        if !self.is_here() {
            // Closed already; the number may stand for something else by now.
            std::mem::forget(descriptor);
            return;
        }
        let raw = descriptor.as_raw_fd();
        for slot in &DESCRIPTORS {
            // At most one has it.
            let _ = slot.compare_exchange(raw, NONE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

extern "C" fn close_in_child() {
    for slot in &DESCRIPTORS {
        let raw = slot.swap(NONE, Ordering::AcqRel);
        if raw != NONE {
            // SAFETY: the child's copy of a descriptor that `Owner` holds, and does not use in the
            // child.
            unsafe { libc::close(raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_not_got_the_descriptor_and_the_parent_keeps_it() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let owner = Owner::new(one.into());
        let raw = owner.descriptor().unwrap().as_raw_fd();
        // SAFETY: the child makes only async-signal-safe calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; asks whether the descriptor is open.
            let open = unsafe { libc::fcntl(raw, libc::F_GETFD) } >= 0;
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(open)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child must find the descriptor closed");
        assert!(owner.descriptor().is_some());
        drop(owner);
        let mut end = [0; 1];
        let read = std::io::Read::read(&mut &other, &mut end).unwrap();
        assert_eq!(read, 0, "nobody has the other end");
    }
}
