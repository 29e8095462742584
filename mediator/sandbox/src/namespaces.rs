//! Namespaces of a process's own.
//!
//! A process with threads cannot enter a user namespace. A PID namespace would only be for children
//! of this process, which has none; `docs/decisions/0026-confinement-of-workers.md` has the rest.
#![allow(unsafe_code)] // A system call that could separate the descriptors of threads.

use std::fs;
use std::io;

use rustix::thread::UnshareFlags;

/// Enters a new user namespace, in which the user and the group of this process have the numbers
/// that they have outside. The process has all capabilities in the namespace, and none outside.
pub fn enter_user() -> io::Result<()> {
    let (user, group) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    unshare(UnshareFlags::NEWUSER)?;
    // Without this, only a privileged process may map groups.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Enters a new network namespace. It has a loopback device, which is down.
pub fn enter_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Enters a new IPC namespace.
pub fn enter_ipc() -> io::Result<()> {
    unshare(UnshareFlags::NEWIPC)
}

fn unshare(what: UnshareFlags) -> io::Result<()> {
    debug_assert!(!what.contains(UnshareFlags::FILES));
    // SAFETY: the threads of this process keep sharing their descriptors.
    Ok(unsafe { rustix::thread::unshare_unsafe(what) }?)
}
