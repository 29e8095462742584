//! The worker's side: a mediator with one session, told what to do over sockets.

mod calls;
mod exchange;
mod host;
mod lane;
mod session;

use causeway_mediator::GuestSession;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_mediator::backend::Backend;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};

use crate::report::truncate;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::Kind;
use crate::{DeviceUuid, bus_error};
use session::Served;

/// What a worker works with.
pub struct Equipment {
    /// Executes the guest's work.
    pub backend: Arc<dyn Backend>,
    /// UUID of the device whose memory guests' CPUs may see, so that the VMM finds it, too.
    pub device: Option<DeviceUuid>,
    /// Gives what the binary wants to know beside the session's report, as it is at that moment; at most 60 KiB.
    pub supplement: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
}

/// Why a process cannot be a worker.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was not started by a VMM.
    #[error("this command is for the program itself: it serves the VM on its standard input")]
    NotStarted(#[source] io::Error),
    /// The VMM is gone already.
    #[error("the process that started this worker is gone")]
    Orphan,
    /// No session.
    #[error("the worker cannot begin: {reason}")]
    Begin {
        /// What went wrong.
        reason: String,
    },
}

/// Serves one VM over the socket that is this process's standard input, with what `equip` makes, until the VM closes
/// the session or its process is gone, however it goes. `parent` is the number of the process that started this one.
///
/// Ends the process, unless it fails before the session has begun.
///
/// # Errors
/// [`ServeError`].
pub fn serve<E: Error>(
    parent: u32,
    equip: impl FnOnce() -> Result<Equipment, E>,
) -> Result<(), ServeError> {
    let control = take_input().map_err(ServeError::NotStarted)?;
    die_with(parent)?;
    restrict();
    // Who exports memory to this guest may cut it short.
    bus_error::survive().map_err(ServeError::NotStarted)?;
    let control = Socket::from_descriptor(control);
    let mut room = buffer();
    let mut start = control.receive(&mut room).map_err(begin)?;
    if start.kind != Kind::Start {
        return Err(begin(SocketError::Malformed("nothing was started")));
    }
    let equipment = match equip() {
        Ok(equipment) => equipment,
        Err(error) => {
            let mut reason = chain(&error);
            truncate(&mut reason);
            // Nobody is there to be told more.
            let _ = control.send(Kind::Refused, &[reason.as_bytes()], &[]);
            return Ok(());
        }
    };
    let served = Served::begin(&mut start, equipment, &control)?;
    drop(start);
    loop {
        match control.receive(&mut room) {
            Ok(datagram) => obey(&served, datagram),
            Err(SocketError::Nothing) => {}
            // Whoever this was done for is gone.
            Err(_) => end_now(),
        }
    }
}

fn obey(served: &Arc<Served>, mut datagram: Datagram<'_>) {
    match datagram.kind {
        Kind::NewLane => match datagram.descriptor() {
            Ok(socket) => lane::start(served, Socket::from_descriptor(socket)),
            Err(_) => end_now(),
        },
        Kind::Interrupt => served.session.interrupt(),
        Kind::Halt => served.session.halt(),
        _ => end_now(),
    }
}

/// The socket, and in its place nothing: guests and libraries have no business there.
fn take_input() -> io::Result<OwnedFd> {
    let input = io::stdin();
    let socket = rustix::io::fcntl_dupfd_cloexec(input.as_fd(), 3)?;
    rustix::net::sockopt::socket_type(&socket)?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(socket)
}

/// Has the kernel kill this process when its parent ends, of whatever cause.
fn die_with(parent: u32) -> Result<(), ServeError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| ServeError::NotStarted(e.into()))?;
    // It may have ended before the call above: then somebody else is the parent by now.
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if parent.is_none() || getppid() != parent {
        return Err(ServeError::Orphan);
    }
    Ok(())
}

/// Gives up what a worker never needs. A guest may come to control it.
fn restrict() {
    if let Err(e) = rustix::thread::set_no_new_privs(true) {
        log::warn!("a worker keeps the right to gain privileges: {e}");
    }
    // A core dump would hold the guest's memory.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(e) = setrlimit(Resource::Core, none) {
        log::warn!("a worker may leave a core dump: {e}");
    }
}

/// Ends this process at once: the kernel gives everything back, and no destructor of a driver gets to hang.
fn end_now() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

fn begin(error: SocketError) -> ServeError {
    ServeError::Begin {
        reason: error.to_string(),
    }
}

/// An error with its causes, as one clause.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += ": ";
        text += &cause.to_string();
        source = cause.source();
    }
    text
}
