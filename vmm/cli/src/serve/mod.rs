//! `causeway serve`: the GPU for ordinary processes of this host, over a socket.
//!
//! A connection is a session, which ends with it. The way there is [`causeway_protocol::socket`].

mod connection;
mod host;
mod listener;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;

use causeway_mediator::{GuestSession, Quota};
use causeway_vmm::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vmm_sys_util::eventfd::EventFd;

use crate::arguments::ServeArguments;
use crate::back_end::{BackEnd, Users};
use crate::configuration::{choose_gpu, within};
use crate::failure::{Code, Failure};
use crate::gpu::Gpu;
use crate::{run, terminal};
use connection::Connection;
use host::ClientHost;
use listener::Listener;

/// Aperture of each process in bytes: addresses that it reserves.
const APERTURE_BYTES: u64 = 64 << 30;
/// `EFD_NONBLOCK`, which is `O_NONBLOCK` (eventfd(2)).
const NONBLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// How soon to look again for a thread that has said that it ends.
const ENDING: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};
/// Most processes at a time.
const PROCESSES_MAX: u32 = 64;

/// A process that is connected, from the server's side.
struct Served {
    name: String,
    socket: Arc<OwnedFd>,
    session: Arc<dyn GuestSession>,
    thread: JoinHandle<()>,
    /// Whether the process is gone, and the thread about to end.
    leaving: bool,
}

/// The server.
struct Server {
    back_end: BackEnd,
    gpu: Gpu,
    processes: u32,
    /// Connections so far, for names.
    count: u64,
    served: Vec<Served>,
    /// Signalled by threads that are about to end.
    ended: Arc<EventFd>,
    /// Threads that have signalled and are still to be joined.
    ending: u64,
}

/// Serves until a signal comes.
pub fn run(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    let most = u64::from(PROCESSES_MAX);
    within("--processes", arguments.processes.into(), 1, most)?;
    let (gpu, gpu_text) = choose_gpu(&arguments.gpu)?;
    let mut signals = run::block_signals()?;
    run::raise_descriptor_limit();
    let back_end = BackEnd::open(&gpu, &gpu_text, Users::Processes(arguments.processes))?;
    let path = &arguments.socket;
    let listener = Listener::bind(path).map_err(|e| {
        Failure::new(
            Code::Usage,
            format!("--socket {} cannot be", path.display()),
            e,
        )
    })?;
    let failed = |e| Failure::new(Code::Crashed, "the server cannot go on", e);
    let mut server = Server {
        back_end,
        gpu,
        processes: arguments.processes,
        count: 0,
        served: Vec::new(),
        ended: Arc::new(EventFd::new(NONBLOCKING).map_err(failed)?),
        ending: 0,
    };
    terminal::say(&format!(
        "causeway: serving {gpu_text} at {}; programs want CAUSEWAY_SOCKET={0}",
        path.display()
    ));
    let outcome = server.serve(&listener, &mut signals);
    // Nobody can connect any more; then those who are connected go.
    drop(listener);
    server.end();
    outcome.map_err(|e| failed(e.into()))?;
    Ok(ExitCode::SUCCESS)
}

impl Server {
    /// Takes connections, and notices their ends, until a signal comes.
    fn serve(&mut self, listener: &Listener, signals: &mut Signals) -> Result<(), Errno> {
        loop {
            let (connecting, gone) = self.wait(listener, signals)?;
            if signals.take().is_some() {
                return Ok(());
            }
            for index in gone {
                self.served[index].leave();
            }
            self.ending += self.ended.read().unwrap_or(0);
            self.reap();
            if connecting {
                self.admit(listener);
            }
        }
    }

    /// Sleeps until something happens: whether somebody connects, and which connections have ended at the other side.
    fn wait(&self, listener: &Listener, signals: &Signals) -> Result<(bool, Vec<usize>), Errno> {
        let (signals, ended) = (borrow(signals), borrow(&*self.ended));
        let mut polled = vec![
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(ended, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        let present = |(index, served): (usize, &Served)| (!served.leaving).then_some(index);
        let watched: Vec<usize> = self.served.iter().enumerate().filter_map(present).collect();
        for index in &watched {
            let socket = self.served[*index].socket.as_fd();
            polled.push(PollFd::from_borrowed_fd(socket, PollFlags::RDHUP));
        }
        let timeout = (self.ending > 0).then_some(ENDING);
        loop {
            match poll(&mut polled, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
                Ok(_) => break,
            };
        }
        let connecting = !polled[2].revents().is_empty();
        let ended = |(index, polled): (&usize, &PollFd<'_>)| {
            (!polled.revents().is_empty()).then_some(*index)
        };
        let gone = watched.iter().zip(&polled[3..]).filter_map(ended).collect();
        Ok((connecting, gone))
    }

    /// Takes a connection, if there is one and room for it. Why it has no session, its process sees from the end of it.
    fn admit(&mut self, listener: &Listener) {
        let socket = match listener.accept() {
            Ok(socket) => Arc::new(socket),
            Err(e) => return log::warn!("a process could not connect: {e}"),
        };
        if self.served.len() >= self.processes as usize {
            return log::warn!(
                "a process was turned away: {} are connected already; --processes lets more in",
                self.processes
            );
        }
        self.count += 1;
        let name = format!("process{}", self.count);
        let host = ClientHost::new(APERTURE_BYTES);
        let quota = Quota {
            memory_bytes: self.gpu.memory_bytes,
            allocations: self.gpu.allocations(self.processes),
            command_buffers: self.gpu.queues,
            ..Quota::default()
        };
        let sessions = self.back_end.sessions();
        let session = match sessions.open(Arc::clone(&host) as _, quota, &name) {
            Ok(session) => session,
            Err(e) => return log::error!("no session for {name}: {e}"),
        };
        let connection = Connection::new(Arc::clone(&socket), host, Arc::clone(&session));
        match self.start(&name, connection, Arc::clone(&session)) {
            Ok(thread) => self.served.push(Served {
                name,
                socket,
                session,
                thread,
                leaving: false,
            }),
            Err(e) => log::error!("no thread for {name}: {e}"),
        }
    }

    fn start(
        &self,
        name: &str,
        mut connection: Connection,
        session: Arc<dyn GuestSession>,
    ) -> std::io::Result<JoinHandle<()>> {
        let ended = Arc::clone(&self.ended);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                if let Err(e) = connection.serve() {
                    log::warn!("the connection ends: {e}");
                }
                session.close();
                drop(connection);
                // Only a full counter refuses, and then the main thread wakes anyway.
                let _ = ended.write(1);
            })
    }

    /// Joins threads that have ended.
    fn reap(&mut self) {
        let (ended, served) = std::mem::take(&mut self.served)
            .into_iter()
            .partition(|served: &Served| served.thread.is_finished());
        self.served = served;
        self.ending = self.ending.saturating_sub(ended.len() as u64);
        ended.into_iter().for_each(Served::join);
    }

    /// Ends all connections.
    fn end(&mut self) {
        for served in &mut self.served {
            served.leave();
            // Wakes its thread, whether it waits for a request or for room to reply.
            let _ = rustix::net::shutdown(&*served.socket, rustix::net::Shutdown::Both);
        }
        self.served.drain(..).for_each(Served::join);
    }
}

impl Served {
    /// The process will not read replies any more: nothing is worth waiting for.
    fn leave(&mut self) {
        self.leaving = true;
        self.session.halt();
    }

    fn join(self) {
        match self.thread.join() {
            Ok(()) => log::info!("{} is gone", self.name),
            Err(_) => log::error!("the thread of {} has panicked", self.name),
        }
    }
}

/// The descriptor of something that only tells its number.
#[allow(unsafe_code)] // The types of vmm-sys-util have no `AsFd`.
fn borrow(file: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: whatever is borrowed keeps its descriptor open meanwhile.
    unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) }
}
