//! A client process of the server: the thread that opens its session and serves it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use causeway_mediator::{GuestSession, OpenError, Quota};
use causeway_run::back_end::BackEnd;
use causeway_terminal::{Code, Failure};
use causeway_vmm::waits::Wait;

use crate::connection::{self, Connection};
use crate::ending::Ending;
use crate::host::ClientHost;
use crate::processes::{EndedSessions, ProcessList};

/// Aperture of each process in bytes: addresses that it reserves.
pub const APERTURE_BYTES: u64 = 64 << 30;

/// What the server has for one more client process.
pub struct Place {
    /// Name of the process, in logs and for monitors.
    pub name: String,
    /// Number of its GPU.
    pub gpu: usize,
    /// Limits of its session.
    pub quota: Quota,
    /// Where its session is opened.
    pub back_end: Arc<BackEnd>,
    /// The client processes, for monitors.
    pub process_list: ProcessList,
    /// Where the report of the session goes, if anybody wants it.
    pub ended: Option<EndedSessions>,
}

/// A connected client process.
pub struct Client {
    name: String,
    gpu: usize,
    socket: Arc<OwnedFd>,
    opening: Arc<Opening>,
    thread: JoinHandle<()>,
    /// Whether the thread is about to end.
    ending: Ending,
}

/// The session of a client process, from the time at which it begins to open.
#[derive(Default)]
struct Opening {
    /// Whether the process has disconnected, or the server ends.
    is_unwanted: AtomicBool,
    session: OnceLock<Arc<dyn GuestSession>>,
}

impl Opening {
    /// Keeps the session, and stops its work if nobody wants it any more.
    fn is_open(&self, session: &Arc<dyn GuestSession>) {
        let _ = self.session.set(Arc::clone(session));
        if self.is_unwanted.load(Ordering::SeqCst) {
            session.halt();
        }
    }

    /// Stops the session's work, now or as soon as it is open.
    fn leave(&self) {
        self.is_unwanted.store(true, Ordering::SeqCst);
        if let Some(session) = self.session.get() {
            session.halt();
        }
    }
}

impl Client {
    /// Starts the thread that opens a session for the process at `socket`, and then answers the
    /// process.
    ///
    /// # Errors
    /// The kernel's error, if it starts no thread.
    pub fn start(place: Place, socket: &Arc<OwnedFd>, ending: Ending) -> io::Result<Self> {
        let (name, gpu) = (place.name.clone(), place.gpu);
        let opening = Arc::<Opening>::default();
        let thread = {
            let (socket, opening, ending) =
                (Arc::clone(socket), Arc::clone(&opening), ending.clone());
            let thread = std::thread::Builder::new().name(name.clone());
            thread.spawn(move || {
                // Dropped also if the thread panics.
                let _begins = ending.on_drop();
                serve(place, &socket, &opening);
            })?
        };
        Ok(Self {
            name,
            gpu,
            socket: Arc::clone(socket),
            opening,
            thread,
            ending,
        })
    }

    /// Returns the number of the GPU that it uses over this connection.
    pub const fn gpu(&self) -> usize {
        self.gpu
    }

    /// Returns the socket of the process.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Stops the session's work, because the process reads no more replies.
    pub fn leave(&self) {
        self.opening.leave();
    }

    /// Ends the connection: the thread, which may wait for a request or for room to reply, wakes.
    pub fn disconnect(&self) {
        self.leave();
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }

    /// Returns whether [`Self::leave`] was called.
    pub fn is_leaving(&self) -> bool {
        self.opening.is_unwanted.load(Ordering::SeqCst)
    }

    /// Returns whether the thread is about to end.
    pub fn is_ending(&self) -> bool {
        self.ending.has_begun()
    }

    /// Returns whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the thread has ended.
    pub fn join(self) {
        let _wait = Wait::begin(format!("the GPU session of {} to close", self.name));
        match self.thread.join() {
            Ok(()) => log::info!("{} has disconnected", self.name),
            Err(_) => log::error!(
                "the thread that serves client {name} panicked; this is a bug in Causeway",
                name = self.name
            ),
        }
    }
}

/// Opens the session of a process, and answers the process until it disconnects. A process that
/// cannot be served is told why.
fn serve(place: Place, socket: &Arc<OwnedFd>, opening: &Opening) {
    let Place {
        name,
        gpu,
        quota,
        back_end,
        process_list,
        ended,
    } = place;
    let host = ClientHost::new(APERTURE_BYTES);
    let mut gives_up = || opening.is_unwanted.load(Ordering::SeqCst);
    let sessions = back_end.sessions();
    let session = match sessions.open(Arc::clone(&host) as _, quota, &name, &mut gives_up) {
        Ok(session) => session,
        Err(OpenError::GivenUp { .. }) => {
            return connection::refuse(socket, "the server ends");
        }
        Err(e) => {
            let why = Failure::new(Code::Gpu, "cannot open a GPU session", e).text();
            return connection::turn_away(socket, &why);
        }
    };
    opening.is_open(&session);
    if gives_up() {
        return session.close();
    }
    log::info!("{name} has connected");
    process_list.add((&name, gpu as u32), &session, &host);
    let mut connection = Connection::new(Arc::clone(socket), host, Arc::clone(&session));
    if let Err(e) = connection.serve() {
        log::warn!("closed the connection to a client process, whose session ends: {e}");
    }
    session.close();
    if let Some(ended) = ended {
        ended.add(gpu as u32, session.report());
    }
}
