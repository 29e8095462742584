//! SIGINT and SIGTERM, read from a descriptor (`signalfd`).
#![allow(unsafe_code)] // `signalfd` has no safe wrapper among our crates.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use vmm_sys_util::signal::{block_signal, create_sigset, unblock_signal};

/// Signals that end a run.
const SIGNALS: [i32; 2] = [libc::SIGINT, libc::SIGTERM];

/// A descriptor that becomes readable when SIGINT or SIGTERM arrives. While this value lives, both
/// signals are blocked in the thread that created it and in threads that this thread creates: they
/// do not end the process.
#[derive(Debug)]
pub struct Signals {
    file: File,
    blocked: Vec<i32>,
}

impl Signals {
    /// Blocks SIGINT and SIGTERM, and opens the descriptor. No other thread may exist yet: in such
    /// a thread, these signals would still end the process.
    ///
    /// # Errors
    /// The Linux kernel's error if the process has no file descriptor left.
    pub fn block() -> io::Result<Self> {
        let set = create_sigset(&SIGNALS).map_err(io::Error::from)?;
        // Refused only for a signal that is blocked already, which then is not ours to unblock.
        let blocked = SIGNALS
            .into_iter()
            .filter(|signal| block_signal(*signal).is_ok())
            .collect();
        // SAFETY: the set is valid for the call, and -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh, and nobody else knows of it.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file, blocked })
    }

    /// Returns the number of a signal that has arrived and was not taken yet; `None` if there is
    /// none.
    pub fn take(&mut self) -> Option<i32> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.file.read_exact(&mut info).ok()?;
        // `ssi_signo` is the first field (signalfd(2)).
        info.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came while nobody read must not kill the process now that the run is over.
        while self.take().is_some() {}
        for signal in &self.blocked {
            if let Err(e) = unblock_signal(*signal) {
                log::warn!(
                    "cannot unblock signal {signal} at the end of the run, so this process ignores \
                     the signal from now on: {e}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_this_thread_is_read_and_not_died_of() {
        let mut signals = Signals::block().unwrap();
        assert_eq!(signals.take(), None);
        // SAFETY: signals this thread only, which has the signal blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        assert_eq!(signals.take(), Some(libc::SIGTERM));
        assert_eq!(signals.take(), None);
        // SAFETY: as above.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
        drop(signals);
    }
}
