//! The worker's side: a mediator with one session, which the VMM uses over sockets.

mod calls;
mod channel;
mod confinement;
mod error;
mod exchange;
mod host;
mod lease;
pub(crate) mod process;
mod session;

use causeway_mediator::GuestSession;
use causeway_sandbox::{Missing, make_room};
use std::error::Error;
use std::sync::Arc;

use crate::bus_error;
use crate::report::truncate;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::Kind;
pub use confinement::Confinement;
pub use error::ServeError;
use error::chain;
use process::{die_with, end_now, take_input};
pub use session::Equipment;
use session::Served;

/// Runs a worker process: opens the session that the VMM describes on standard input, which must be
/// a socket, and serves the session until the VMM closes it or ends. `parent` is the process ID
/// (PID) of the VMM. `serve` calls `equip` once, to create the back end.
///
/// The process confines itself as `confinement` says: before `equip`, which may load a driver, it
/// gives up files, capabilities and namespaces; after it, system calls. Nothing of a guest is in
/// the process before both are done. This function must be called while the process has one thread.
///
/// Returns only if the session cannot be opened. Otherwise it ends this process when the session is
/// closed or the VMM ends.
///
/// # Errors
/// [`ServeError::NotStarted`] if standard input is not a socket or the kernel refuses a setting,
/// [`ServeError::Orphan`] if the VMM has ended, [`ServeError::Begin`] if the VMM's first message is
/// malformed or guest RAM cannot be mapped. If `equip` fails, `serve` sends its error to the VMM
/// and returns `Ok`.
pub fn serve<E: Error>(
    parent: u32,
    mut confinement: Confinement,
    equip: impl FnOnce() -> Result<Equipment, E>,
) -> Result<(), ServeError> {
    let control = take_input().map_err(ServeError::NotStarted)?;
    die_with(parent)?;
    // Its libraries start threads, and open many files.
    make_room();
    let missing = confinement.enter();
    // A process that changes its rights loses this setting.
    die_with(parent)?;
    // Another guest may truncate memory that it exports to this one.
    bus_error::survive().map_err(ServeError::NotStarted)?;
    let control = Socket::from_descriptor(control);
    let mut room = buffer();
    let served = match begin(&control, &confinement, missing, equip)? {
        Some(served) => served,
        None => return Ok(()),
    };
    loop {
        match control.receive(&mut room) {
            Ok(datagram) => obey(&served, datagram),
            Err(SocketError::Timeout) => {}
            // The VMM has ended.
            Err(_) => end_now(),
        }
    }
}

/// Creates the back end, and opens the session once the VMM has described it. A worker that is
/// started ahead of its session does the first at once. Returns `None` if there is no back end,
/// or the process is not confined as it must be, which the VMM is told. `missing` is what the host
/// lacked so far.
fn begin<E: Error>(
    control: &Socket,
    confinement: &Confinement,
    mut missing: Vec<Missing>,
    equip: impl FnOnce() -> Result<Equipment, E>,
) -> Result<Option<Arc<Served>>, ServeError> {
    let (mut first_room, mut room) = (buffer(), buffer());
    let mut start = control.receive(&mut first_room)?;
    let is_ahead = start.kind == Kind::Prepare;
    if !is_ahead {
        check_start(&start)?;
    }
    if let Some(reason) = confinement.refusal(&missing) {
        return Ok(refuse(control, reason));
    }
    let equipment = match equip() {
        Ok(equipment) => equipment,
        Err(error) => return Ok(refuse(control, confinement.explain(chain(&error)))),
    };
    missing.extend(confinement.filter());
    if let Some(reason) = confinement.refusal(&missing) {
        return Ok(refuse(control, reason));
    }
    missing
        .iter()
        .for_each(|missing| log::debug!("this worker process is confined without {missing}"));
    if is_ahead {
        control.send(Kind::Prepared, &[], &[])?;
        start = control.receive(&mut room)?;
        check_start(&start)?;
    }
    Served::begin(&mut start, equipment, &missing, control).map(Some)
}

/// Tells the VMM why there is no session.
fn refuse(control: &Socket, mut reason: String) -> Option<Arc<Served>> {
    truncate(&mut reason);
    // The VMM may have ended already.
    let _ = control.send(Kind::Refused, &[reason.as_bytes()], &[]);
    None
}

fn check_start(message: &Datagram<'_>) -> Result<(), SocketError> {
    match message.kind {
        Kind::Start => Ok(()),
        _ => Err(SocketError::Malformed(
            "the first message of the VMM opens no session",
        )),
    }
}

fn obey(served: &Arc<Served>, mut datagram: Datagram<'_>) {
    match datagram.kind {
        Kind::NewChannel => match datagram.descriptor() {
            Ok(socket) => channel::start(served, Socket::from_descriptor(socket)),
            Err(_) => end_now(),
        },
        Kind::NewLease => match datagram.descriptor() {
            Ok(socket) => lease::start(served, Socket::from_descriptor(socket)),
            Err(_) => end_now(),
        },
        Kind::Interrupt => served.session.interrupt(),
        Kind::Halt => served.session.halt(),
        _ => end_now(),
    }
}
