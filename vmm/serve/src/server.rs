//! `causeway serve`: the GPU for ordinary processes of this host, over a socket.
//!
//! Each connection has a session, which ends with the connection. [`causeway_protocol::socket`]
//! describes the messages.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_mediator::{GuestSession, OpenError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::arguments::ServeArguments;
use crate::connection::{self, Connection};
use crate::ending::{Ending, Ends};
use crate::host::{ClientHost, borrow};
use crate::processes::ProcessList;
use crate::stop::Stop;
use causeway_publisher::listener::Listener;
use causeway_publisher::{MetricsPlaces, Publisher};
use causeway_run as run;
use causeway_run::back_end::{BackEnd, Users};
use causeway_run::configuration::{choose_gpu, unavailable};
use causeway_run::gpu::{Gpu, Isolation};
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, shown_path};

/// Aperture of each process in bytes: addresses that it reserves.
const APERTURE_BYTES: u64 = 64 << 30;
/// Time until the server checks again for a thread that has announced its end.
const ENDING: Duration = Duration::from_millis(2);
/// Pause after a connection could not be accepted. The client stays in the queue, and the missing
/// resource may become free.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of warnings about an event that processes can cause at will; later ones have level debug.
const WARNINGS: u32 = 8;
/// Time from the start of a session to that of the next spare worker, which would slow the first
/// work of the session down: a driver starts up.
const REFILL: Duration = Duration::from_secs(2);

/// Worker processes that a server starts ahead of sessions.
#[derive(Clone, Copy, Debug)]
pub struct Spares {
    /// Number of them at the start.
    pub first: u32,
    /// Number of them that are kept up from then on.
    pub kept: u32,
}

/// A connected client process.
struct Client {
    name: String,
    socket: Arc<OwnedFd>,
    session: Arc<dyn GuestSession>,
    thread: JoinHandle<()>,
    /// Whether the thread is about to end.
    ending: Ending,
    /// Whether the process has disconnected.
    leaving: bool,
}

/// The server.
pub struct Server {
    back_end: BackEnd,
    gpu: Gpu,
    processes: u32,
    /// Number of connections so far, from which client processes get their names.
    count: u64,
    served: Vec<Client>,
    /// The client processes, for monitors.
    process_list: ProcessList,
    /// The event that threads signal when they are about to end.
    ends: Ends,
    spares: Spares,
    /// Time at which spare workers are started, after some were taken.
    refill_at: Option<Instant>,
    /// Time at which the server accepts connections again, during a pause.
    paused_until: Option<Instant>,
    /// Number of processes that were refused.
    turned_away: u32,
    not_taken: u32,
}

/// Serves client processes until SIGINT, SIGTERM, SIGHUP or SIGPIPE arrives.
///
/// # Errors
/// A usage failure if an argument is invalid or the socket cannot be created; a GPU failure if the
/// back end is not available; a failure with [`Code::Crashed`] if a system call fails.
pub fn run(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.socket_path()?;
    terminal::refuse_same_file(&[
        ("--socket", Some(path)),
        (
            "--metrics-socket",
            arguments.metrics.metrics_socket.as_deref(),
        ),
    ])?;
    let metrics = arguments.metrics.places()?;
    let (gpu, gpu_text) = choose_gpu(&arguments.gpu)?;
    let mut signals = run::block_signals()?;
    run::raise_descriptor_limit();
    let users = Users::Processes(arguments.processes);
    let spares = Spares {
        first: arguments.spare_workers,
        kept: arguments.spare_workers,
    };
    if spares.kept != 0 && gpu.isolation == Isolation::None {
        return Err(Failure::usage(format!(
            "invalid value {} for --spare-workers: with --gpu {gpu_text}, sessions have no worker \
             processes; add isolation=process to --gpu",
            spares.kept
        )));
    }
    let mut server = Server::new(gpu, &gpu_text, users, spares)?;
    let listener =
        Listener::bind(path).map_err(|e| Failure::usage_from("--socket", &shown_path(path), e))?;
    let _publisher = server.publish(&gpu_text, &metrics)?;
    terminal::say(&invitation(&gpu_text, path));
    let outcome = server.serve(&listener, &mut signals);
    // First no process can connect any more, then the connected ones are disconnected.
    drop(listener);
    server.end();
    outcome.map_err(|e| failed(e.into()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what the server says when it listens.
fn invitation(gpu_text: &str, path: &Path) -> String {
    let shown = shown_path(path);
    format!("causeway: serving {gpu_text} at {shown}; run programs with CAUSEWAY_SOCKET={shown}")
}

/// Opens a session in a worker process and closes it: only the first session of a worker process
/// shows whether the host has what the back end needs. Uses a back end of its own, because sessions
/// are numbered.
fn try_worker(gpu: &Gpu, gpu_text: &str, users: Users) -> Result<(), Failure> {
    let back_end = BackEnd::open(gpu, gpu_text, users)?;
    let host = ClientHost::new(APERTURE_BYTES);
    let session = back_end.sessions().open(host, gpu.quota(1), "trial");
    session.map_err(|e| not_opened(gpu_text, e))?.close();
    Ok(())
}

/// Returns the failure of a server whose worker process cannot open a session.
fn not_opened(gpu_text: &str, error: OpenError) -> Failure {
    match error {
        e @ OpenError::Unavailable { .. } => unavailable(gpu_text, e),
        e => Failure::new(Code::Crashed, "cannot open a GPU session", e),
    }
}

fn failed(error: std::io::Error) -> Failure {
    let message = "cannot continue to serve client processes";
    Failure::new(Code::Crashed, message, error)
}

impl Server {
    /// Opens the back end for `users`, who are client processes. `gpu_text` is the value of
    /// `--gpu` from which `gpu` was parsed. If there are spare workers, returns once the first is
    /// ready.
    pub fn new(gpu: Gpu, gpu_text: &str, users: Users, spares: Spares) -> Result<Self, Failure> {
        let back_end = BackEnd::open(&gpu, gpu_text, users)?;
        if gpu.isolation == Isolation::Process {
            match spares.first {
                0 => try_worker(&gpu, gpu_text, users)?,
                // The first shows as well whether the host has what the back end needs.
                count => {
                    back_end.prepare(count).map_err(failed)?;
                    let ready = back_end.await_prepared();
                    ready.map_err(|e| not_opened(gpu_text, e))?;
                }
            }
        }
        Ok(Self {
            back_end,
            gpu,
            processes: users.count(),
            count: 0,
            served: Vec::new(),
            process_list: ProcessList::default(),
            ends: Ends::new().map_err(failed)?,
            spares,
            refill_at: None,
            paused_until: None,
            turned_away: 0,
            not_taken: 0,
        })
    }

    /// Publishes the statistics of the processes to monitors.
    pub fn publish(&self, gpu: &str, metrics: &MetricsPlaces) -> Result<Publisher, Failure> {
        let (process_list, gpu) = (self.process_list.clone(), gpu.to_owned());
        let look = move || process_list.look(&gpu);
        Publisher::start(Box::new(look), metrics).map_err(run::unpublished)
    }

    /// Accepts connections and removes ended ones until `stop` comes.
    pub fn serve(&mut self, listener: &Listener, stop: &mut impl Stop) -> Result<(), Errno> {
        loop {
            let (connecting, gone) = self.wait(listener, stop)?;
            if stop.has_come() {
                return Ok(());
            }
            for index in gone {
                self.served[index].leave();
            }
            self.ends.take();
            self.reap();
            self.refill();
            if connecting {
                self.admit(listener);
            }
        }
    }

    /// Waits for an event. Returns whether a process connects, and which processes have
    /// disconnected.
    fn wait(&mut self, listener: &Listener, stop: &impl Stop) -> Result<(bool, Vec<usize>), Errno> {
        let timeout = self.timeout();
        let connections = match self.paused_until {
            Some(_) => PollFlags::empty(),
            None => PollFlags::IN,
        };
        let mut polled = vec![
            PollFd::from_borrowed_fd(borrow(stop), PollFlags::IN),
            PollFd::from_borrowed_fd(borrow(self.ends.event()), PollFlags::IN),
            PollFd::new(listener, connections),
        ];
        let present = |(index, served): (usize, &Client)| (!served.leaving).then_some(index);
        let watched: Vec<usize> = self.served.iter().enumerate().filter_map(present).collect();
        for index in &watched {
            let socket = self.served[*index].socket.as_fd();
            polled.push(PollFd::from_borrowed_fd(socket, PollFlags::RDHUP));
        }
        retry_on_intr(|| poll(&mut polled, timeout.as_ref()))?;
        let connecting = !polled[2].revents().is_empty();
        let ended = |(index, polled): (&usize, &PollFd<'_>)| {
            (!polled.revents().is_empty()).then_some(*index)
        };
        let gone = watched.iter().zip(&polled[3..]).filter_map(ended).collect();
        Ok((connecting, gone))
    }

    /// Returns the longest time to wait, and ends a pause that is over.
    fn timeout(&mut self) -> Option<Timespec> {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| *until > now);
        let pause = self.paused_until.map(|until| until - now);
        let refill = self.refill_at.map(|at| at.saturating_duration_since(now));
        let ending = self.served.iter().any(|served| served.ending.has_begun());
        let all = ending.then_some(ENDING).into_iter();
        let soonest = all.chain(pause).chain(refill).min();
        // These durations are short, so the conversion cannot fail.
        soonest.and_then(|wait| Timespec::try_from(wait).ok())
    }

    /// Starts spare workers in place of those that sessions have taken, when it is time for it.
    fn refill(&mut self) {
        if self.refill_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.refill_at = None;
        if let Err(e) = self.back_end.prepare(self.spares.kept) {
            log::warn!("cannot start a worker process ahead of its session: {e}");
        }
    }

    /// Accepts a connection, if one waits. A process that cannot be served is told why.
    fn admit(&mut self, listener: &Listener) {
        let socket = match listener.accept() {
            Ok(socket) => Arc::new(socket),
            Err(e) => {
                self.paused_until = Some(Instant::now() + PAUSE);
                let level = level(&mut self.not_taken);
                return log::log!(
                    level,
                    "cannot accept the connection of a client process: {e}"
                );
            }
        };
        if self.served.len() >= self.processes as usize {
            let why = format!(
                "as many processes as --processes of `causeway serve` allows, {}, are connected \
                 already",
                self.processes
            );
            let level = level(&mut self.turned_away);
            log::log!(level, "refused a client process: {why}");
            return connection::refuse(&socket, &why);
        }
        match self.open(&socket) {
            Ok(served) => {
                self.served.push(served);
                if self.spares.kept != 0 {
                    let soon = Instant::now() + REFILL;
                    self.refill_at.get_or_insert(soon);
                }
            }
            Err(why) => {
                log::error!("cannot serve a client process: {why}");
                connection::refuse(&socket, &why);
            }
        }
    }

    /// Opens a session for the process at `socket`, and starts the thread that serves it. Fails
    /// with the reason, as text for the log and for the process.
    fn open(&mut self, socket: &Arc<OwnedFd>) -> Result<Client, String> {
        self.count += 1;
        let name = format!("process{}", self.count);
        let host = ClientHost::new(APERTURE_BYTES);
        let quota = self.gpu.quota(self.processes);
        let sessions = self.back_end.sessions();
        let session = sessions
            .open(Arc::clone(&host) as _, quota, &name)
            .map_err(|e| Failure::new(Code::Gpu, "cannot open a GPU session", e).text())?;
        log::info!("{name} has connected");
        self.process_list.add(&name, &session, &host);
        let connection = Connection::new(Arc::clone(socket), host, Arc::clone(&session));
        let ending = self.ends.another();
        let thread = start(&name, connection, Arc::clone(&session), ending.clone())
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Client {
            name,
            socket: Arc::clone(socket),
            session,
            thread,
            ending,
            leaving: false,
        })
    }

    /// Joins threads that have ended.
    fn reap(&mut self) {
        let (ended, served) = std::mem::take(&mut self.served)
            .into_iter()
            .partition(|served: &Client| served.thread.is_finished());
        self.served = served;
        ended.into_iter().for_each(Client::join);
    }

    /// Closes all connections and joins their threads.
    pub fn end(&mut self) {
        for served in &mut self.served {
            served.leave();
            // Wakes the thread, which may wait for a request or for room to reply.
            let _ = rustix::net::shutdown(&*served.socket, rustix::net::Shutdown::Both);
        }
        self.served.drain(..).for_each(Client::join);
    }
}

impl Client {
    /// Stops the session's work, because the process reads no more replies.
    fn leave(&mut self) {
        self.leaving = true;
        self.session.halt();
    }

    fn join(self) {
        match self.thread.join() {
            Ok(()) => log::info!("{} has disconnected", self.name),
            Err(_) => log::error!(
                "the thread that serves client {name} panicked; this is a bug in Causeway",
                name = self.name
            ),
        }
    }
}

/// Starts the thread that answers a process.
fn start(
    name: &str,
    mut connection: Connection,
    session: Arc<dyn GuestSession>,
    ending: Ending,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Dropped also if the thread panics.
            let _begins = ending.on_drop();
            if let Err(e) = connection.serve() {
                log::warn!("closed the connection to a client process, whose session ends: {e}");
            }
            session.close();
            drop(connection);
        })
}

/// Returns the log level of an event that has happened `times` times before, and increments
/// `times`.
fn level(times: &mut u32) -> log::Level {
    *times = times.saturating_add(1);
    match *times {
        ..=WARNINGS => log::Level::Warn,
        _ => log::Level::Debug,
    }
}
