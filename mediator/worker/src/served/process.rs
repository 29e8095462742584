//! The worker process itself: what it gives up at its start, and how it ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};

use super::error::ServeError;

/// Takes the socket from standard input, and puts `/dev/null` in its place.
pub(crate) fn take_input() -> io::Result<OwnedFd> {
    let input = io::stdin();
    let socket = rustix::io::fcntl_dupfd_cloexec(input.as_fd(), 3)?;
    rustix::net::sockopt::socket_type(&socket)?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(socket)
}

/// Makes the kernel kill this process when its parent ends.
pub(crate) fn die_with(parent: u32) -> Result<(), ServeError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| ServeError::NotStarted(e.into()))?;
    // The parent may have ended before the call above. Then this process has another parent by now.
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if parent.is_none() || getppid() != parent {
        return Err(ServeError::Orphan);
    }
    Ok(())
}

/// Gives up what a worker never needs, because a guest may come to control it.
pub(super) fn restrict() {
    if let Err(e) = rustix::thread::set_no_new_privs(true) {
        log::warn!(
            "cannot set no_new_privs, so the worker process runs without this protection against \
             gaining privileges: {e}"
        );
    }
    // A core dump would contain the guest's memory.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(e) = setrlimit(Resource::Core, none) {
        log::warn!(
            "cannot disable core dumps, so a crash of the worker process may write guest memory to \
             disk: {e}"
        );
    }
}

/// Kills this process. The kernel frees everything, and no destructor of a driver can hang.
pub(super) fn end_now() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}
