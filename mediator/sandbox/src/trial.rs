//! Tries the mechanisms, each in a process of its own.
#![allow(unsafe_code)] // Forks.

use std::io;

use crate::calls;
use crate::mechanism::{Mechanism, Missing};
use crate::{files, limits, namespaces, privileges};

/// Exit code of a trial whose error is not of the kernel.
const OTHER: i32 = 255;

/// Tries all mechanisms, each in a child process, and returns what the host lacks. This process
/// stays as it is.
pub fn trials() -> Vec<Missing> {
    let all = Mechanism::ALL.into_iter();
    all.filter_map(|mechanism| {
        let source = in_child(|| attempt(mechanism)).err()?;
        Some(Missing { mechanism, source })
    })
    .collect()
}

fn attempt(mechanism: Mechanism) -> io::Result<()> {
    // Where the user may not, the user of a namespace of its own may.
    let as_in_namespace = || drop(namespaces::enter_user());
    match mechanism {
        Mechanism::UserNamespace => namespaces::enter_user(),
        Mechanism::NetworkNamespace => {
            as_in_namespace();
            namespaces::enter_network()
        }
        Mechanism::IpcNamespace => {
            as_in_namespace();
            namespaces::enter_ipc()
        }
        Mechanism::Limits => limits::limit(),
        Mechanism::Capabilities => privileges::drop_capabilities(),
        Mechanism::NoNewPrivileges => privileges::forbid_new(),
        Mechanism::Files => privileges::forbid_new().and_then(|()| files::try_out()),
        Mechanism::Calls => calls::try_out(),
    }
}

/// Runs `work` in a child process, and returns its outcome.
pub(crate) fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child has one thread, and makes system calls and allocations only: the C library
    // releases the locks of its allocator in a child. It ends by `_exit`, so it runs no destructor
    // and no exit function of what it shares with its parent.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = match work() {
                Ok(()) => 0,
                Err(e) => e.raw_os_error().unwrap_or(OTHER),
            };
            // SAFETY: ends the process, and nothing else.
            unsafe { libc::_exit(code) }
        }
        child => outcome(child),
    }
}

/// Waits for a child, and returns the error by which it has ended.
fn outcome(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: `status` lives until the call returns.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        return Err(io::Error::other(format!("signal {signal} ended the trial")));
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        OTHER => Err(io::Error::other("it has no effect")),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
