//! Resource limits.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Threads of a process with a user namespace of its own: command buffers, channels and a driver
/// have some hundred. The kernel counts processes and threads of one user in one namespace.
const THREADS_MAX: u64 = 4096;

/// Limits what no worker needs: a core dump would contain guest memory, message queues take kernel
/// memory, and a realtime thread would take processors from others.
pub fn limit() -> io::Result<()> {
    for resource in [Resource::Core, Resource::Msgqueue, Resource::Rtprio] {
        set(resource, 0)?;
    }
    Ok(())
}

/// Limits the number of threads. Only for a process in a user namespace of its own: elsewhere, the
/// user's other programs count, too.
pub fn limit_threads() -> io::Result<()> {
    let now = rustix::process::getrlimit(Resource::Nproc).maximum;
    set(Resource::Nproc, now.unwrap_or(u64::MAX).min(THREADS_MAX))
}

/// Lifts the limit on locked memory if this process may lock as much as it wants, which it will not
/// be able to when it has no capabilities: drivers lock the memory that a GPU reaches.
pub fn keep_locking() {
    let may = capabilities(None).is_ok_and(|now| now.effective.contains(CapabilitySet::IPC_LOCK));
    if may {
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        // Without the capability to raise limits, it stays as it is.
        let _ = setrlimit(Resource::Memlock, none);
    }
}

fn set(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(resource, limit)?)
}
