//! `causeway serve`: the GPU for ordinary processes of this host, over a socket.
//!
//! Each connection has a session, which ends with the connection. [`causeway_protocol::socket`]
//! describes the messages.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::{GivesUp, OpenError, Quota};
use causeway_protocol::socket::FURTHER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::arguments::ServeArguments;
use crate::client::{APERTURE_BYTES, Client, Place};
use crate::connection;
use crate::ending::Ends;
use crate::host::{ClientHost, borrow};
use crate::processes::{EndedSessions, ProcessList};
use crate::stop::Stop;
use causeway_publisher::listener::{ListenError, Listener};
use causeway_publisher::{Doors, MetricsPlaces, Published, Publisher};
use causeway_run as run;
use causeway_run::back_end::{BackEnd, Conditions, Users};
use causeway_run::gpu::{Gpu, Isolation};
use causeway_run::gpus::{choose, unavailable};
use causeway_sandbox::Sandbox;
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, shown_path};

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

/// What the user chose for the sessions of a server.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The GPUs, of which there is at least one: the back end of each, and the limits of each
    /// session on it, with the value of `--gpu` from which they were parsed.
    pub gpus: Vec<(Gpu, String)>,
    /// How worker processes confine themselves.
    pub sandbox: Sandbox,
}

impl Choice {
    /// Parses the values of `--gpu`.
    pub fn parse(asked: &[String], sandbox: Sandbox) -> Result<Self, Failure> {
        let gpus = choose(asked.iter())?;
        match gpus.is_empty() {
            true => Err(Failure::usage("--gpu names no GPU: this host has none")),
            false => Ok(Self { gpus, sandbox }),
        }
    }

    /// Returns the GPUs as text.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.gpus.iter().map(|(_, text)| &**text).collect();
        texts.join(" ")
    }

    /// Returns where sessions run, which is the same for all GPUs.
    fn isolation(&self) -> Isolation {
        self.gpus[0].0.isolation
    }

    fn open(&self, users: Users) -> Result<Vec<BackEnd>, Failure> {
        let gpus: Vec<(&Gpu, &str)> = self.gpus.iter().map(|(gpu, text)| (gpu, &**text)).collect();
        let conditions = Conditions {
            sandbox: self.sandbox,
            groups: None,
            node_of: &|_| None,
        };
        BackEnd::open_all(&gpus, users, conditions)
    }
}

/// The server.
pub struct Server {
    /// One for each GPU.
    back_ends: Vec<Arc<BackEnd>>,
    gpus: Vec<Gpu>,
    processes: u32,
    /// Number of connections so far, from which client processes get their names.
    count: u64,
    served: Vec<Client>,
    /// The client processes, for monitors.
    process_list: ProcessList,
    /// Where reports of sessions go, if anybody wants them.
    ended: Option<EndedSessions>,
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
    let choice = Choice::parse(&arguments.gpu, arguments.sandbox.sandbox)?;
    let gpu_text = choice.text();
    let mut signals = run::block_signals()?;
    run::raise_descriptor_limit();
    let sessions = arguments.processes * choice.gpus.len() as u32;
    if let Some(problem) = choice.gpus[0].0.shortage(sessions) {
        log::warn!("{problem}");
    }
    let users = Users::Processes(arguments.processes);
    let spares = Spares {
        first: arguments.spare_workers,
        kept: arguments.spare_workers,
    };
    if spares.kept != 0 && choice.isolation() == Isolation::None {
        return Err(Failure::usage(format!(
            "invalid value {} for --spare-workers: with --gpu {gpu_text}, sessions have no worker \
             processes; add isolation=process to --gpu",
            spares.kept
        )));
    }
    let made = Server::new(choice, users, spares, &mut || signals.has_come())?;
    let Some(mut server) = made else {
        // As if the signal had come later.
        return Ok(ExitCode::SUCCESS);
    };
    let listeners = server
        .listen(path)
        .map_err(|(path, e)| Failure::usage_from("--socket", &shown_path(&path), e))?;
    let _publisher = server.publish(&gpu_text, &metrics)?;
    terminal::say(&invitation(&gpu_text, path));
    let outcome = server.serve(&listeners, &mut signals);
    // First no process can connect any more, then the connected ones are disconnected.
    drop(listeners);
    server.end();
    outcome.map_err(|e| failed(e.into()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what the server says when it listens.
fn invitation(gpu_text: &str, path: &Path) -> String {
    let shown = shown_path(path);
    format!("causeway: serving {gpu_text} at {shown}; run programs with CAUSEWAY_SOCKET={shown}")
}

/// Opens a session on each GPU in a worker process and closes it: only the first session of a
/// worker process shows whether the host has what the back end needs. Uses a back end of its own, because sessions
/// are numbered.
fn try_worker(
    choice: &Choice,
    users: Users,
    gives_up: GivesUp<'_>,
) -> Result<Result<(), OpenError>, Failure> {
    for (back_end, (gpu, _)) in choice.open(users)?.iter().zip(&choice.gpus) {
        let host = ClientHost::new(APERTURE_BYTES);
        let sessions = back_end.sessions();
        match sessions.open(host, gpu.quota(1), "trial", gives_up) {
            Ok(session) => session.close(),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
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
    /// Opens the back end of `choice` for `users`, who are client processes. If there are spare
    /// workers, returns once the first is ready. Returns `None` if `gives_up` returns true before
    /// the back end is ready.
    pub fn new(
        choice: Choice,
        users: Users,
        spares: Spares,
        gives_up: GivesUp<'_>,
    ) -> Result<Option<Self>, Failure> {
        let back_ends = choice.open(users)?;
        if choice.isolation() == Isolation::Process {
            let ready = match spares.first {
                0 => try_worker(&choice, users, gives_up)?,
                // The first shows as well whether the host has what the back end needs.
                count => await_spares(&back_ends, count, gives_up)?,
            };
            match ready {
                Err(OpenError::GivenUp { .. }) => return Ok(None),
                ready => ready.map_err(|e| not_opened(&choice.text(), e))?,
            }
        }
        Ok(Some(Self {
            back_ends: back_ends.into_iter().map(Arc::new).collect(),
            gpus: choice.gpus.into_iter().map(|(gpu, _)| gpu).collect(),
            processes: users.count(),
            count: 0,
            served: Vec::new(),
            process_list: ProcessList::default(),
            ended: None,
            ends: Ends::new().map_err(failed)?,
            spares,
            refill_at: None,
            paused_until: None,
            turned_away: 0,
            not_taken: 0,
        }))
    }

    /// Listens at `path` for processes that want the first GPU, and beside it for those that want
    /// each of the others. The first socket comes last: who sees it finds all.
    ///
    /// # Errors
    /// Why the server cannot listen, with the path of the socket.
    pub fn listen(&self, path: &Path) -> Result<Vec<Listener>, (PathBuf, ListenError)> {
        let paths = (0..self.gpus.len()).rev();
        let paths = paths.map(|gpu| socket_of(path, gpu));
        let mut listeners = paths
            .map(|path| Listener::bind(&path).map_err(|e| (path, e)))
            .collect::<Result<Vec<_>, _>>()?;
        listeners.reverse();
        Ok(listeners)
    }

    /// Returns where the reports of sessions will be when they have ended.
    pub fn keep_reports(&mut self) -> EndedSessions {
        self.ended.get_or_insert_default().clone()
    }

    /// Publishes the statistics of the processes to monitors, and lets the user change the limits
    /// of the processes.
    pub fn publish(&self, gpu: &str, metrics: &MetricsPlaces) -> Result<Publisher, Failure> {
        let (process_list, gpu) = (self.process_list.clone(), gpu.to_owned());
        let known = process_list.clone();
        let published = Published {
            look: Box::new(move || process_list.look(&gpu)),
            guests: Box::new(move || known.running()),
            shortage: run::shortage_of,
            control: None,
        };
        let doors = Doors::open(metrics, None).map_err(run::unpublished)?;
        doors.publish(published).map_err(run::unpublished)
    }

    /// Accepts connections and removes ended ones until `stop` comes.
    pub fn serve(&mut self, listeners: &[Listener], stop: &mut impl Stop) -> Result<(), Errno> {
        loop {
            let (connecting, gone) = self.wait(listeners, stop)?;
            if stop.has_come() {
                return Ok(());
            }
            for index in gone {
                self.served[index].leave();
            }
            self.ends.take();
            self.reap();
            self.refill();
            for gpu in connecting {
                self.admit(&listeners[gpu], gpu);
            }
        }
    }

    /// Waits for an event. Returns the GPUs to which a process connects, and which processes have
    /// disconnected.
    fn wait(
        &mut self,
        listeners: &[Listener],
        stop: &impl Stop,
    ) -> Result<(Vec<usize>, Vec<usize>), Errno> {
        let timeout = self.timeout();
        let connections = match self.paused_until {
            Some(_) => PollFlags::empty(),
            None => PollFlags::IN,
        };
        let mut polled = vec![
            PollFd::from_borrowed_fd(borrow(stop), PollFlags::IN),
            PollFd::from_borrowed_fd(borrow(self.ends.event()), PollFlags::IN),
        ];
        let first = polled.len();
        let waiting = listeners.iter();
        polled.extend(waiting.map(|listener| PollFd::new(listener, connections)));
        let present = |(index, served): (usize, &Client)| (!served.is_leaving()).then_some(index);
        let watched: Vec<usize> = self.served.iter().enumerate().filter_map(present).collect();
        for index in &watched {
            let socket = self.served[*index].socket();
            polled.push(PollFd::from_borrowed_fd(socket, PollFlags::RDHUP));
        }
        retry_on_intr(|| poll(&mut polled, timeout.as_ref()))?;
        let (connections, clients) = polled[first..].split_at(listeners.len());
        let has_come = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let connecting = connections.iter().enumerate();
        let connecting = connecting.filter_map(|(gpu, polled)| has_come(polled).then_some(gpu));
        let gone = watched.iter().zip(clients);
        let gone = gone.filter_map(|(index, polled)| has_come(polled).then_some(*index));
        Ok((connecting.collect(), gone.collect()))
    }

    /// Returns the longest time to wait, and ends a pause that is over.
    fn timeout(&mut self) -> Option<Timespec> {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| *until > now);
        let pause = self.paused_until.map(|until| until - now);
        let refill = self.refill_at.map(|at| at.saturating_duration_since(now));
        let ending = self.served.iter().any(|served| served.is_ending());
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
        for back_end in &self.back_ends {
            if let Err(e) = back_end.prepare(self.spares.kept) {
                log::warn!("cannot start a worker process ahead of its session: {e}");
            }
        }
    }

    /// Accepts a connection to a GPU, if one waits. A process that cannot be served is told why.
    fn admit(&mut self, listener: &Listener, gpu: usize) {
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
        let of_gpu = self.served.iter().filter(|served| served.gpu() == gpu);
        if of_gpu.count() >= self.processes as usize {
            let why = format!(
                "as many processes as --processes of `causeway serve` allows, {}, are connected \
                 already",
                self.processes
            );
            let level = level(&mut self.turned_away);
            log::log!(level, "refused a client process: {why}");
            return connection::refuse(&socket, &why);
        }
        match self.start(&socket, gpu) {
            Ok(served) => {
                self.served.push(served);
                if self.spares.kept != 0 {
                    let soon = Instant::now() + REFILL;
                    self.refill_at.get_or_insert(soon);
                }
            }
            Err(e) => connection::turn_away(&socket, &format!("cannot start a thread: {e}")),
        }
    }

    /// Starts the thread that opens a session on a GPU for the process at `socket` and serves it: a
    /// driver that hangs holds up no other process.
    fn start(&mut self, socket: &Arc<OwnedFd>, gpu: usize) -> std::io::Result<Client> {
        self.count += 1;
        let chosen = &self.gpus[gpu];
        let place = Place {
            name: format!("process{}{}", self.count, suffix(gpu)),
            gpu,
            quota: Quota {
                // All processes are alike.
                compute: chosen.compute(0),
                ..chosen.quota(self.processes * self.gpus.len() as u32)
            },
            back_end: Arc::clone(&self.back_ends[gpu]),
            process_list: self.process_list.clone(),
            ended: self.ended.clone(),
        };
        Client::start(place, socket, self.ends.another())
    }

    /// Joins threads that have ended.
    fn reap(&mut self) {
        let (ended, served) = std::mem::take(&mut self.served)
            .into_iter()
            .partition(Client::has_ended);
        self.served = served;
        ended.into_iter().for_each(Client::join);
    }

    /// Closes all connections and joins their threads.
    pub fn end(&mut self) {
        for served in &mut self.served {
            served.disconnect();
        }
        self.served.drain(..).for_each(Client::join);
    }
}

/// Returns what names and paths of a GPU other than the first end with.
fn suffix(gpu: usize) -> String {
    match gpu {
        0 => String::new(),
        gpu => format!("{FURTHER}{gpu}"),
    }
}

/// Returns where processes connect to a GPU of the server at `path`.
fn socket_of(path: &Path, gpu: usize) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix(gpu));
    path.into()
}

/// Starts `count` spare workers of each GPU, and waits until the first of each is ready.
fn await_spares(
    back_ends: &[BackEnd],
    count: u32,
    gives_up: GivesUp<'_>,
) -> Result<Result<(), OpenError>, Failure> {
    for back_end in back_ends {
        back_end.prepare(count).map_err(failed)?;
    }
    for back_end in back_ends {
        if let Err(error) = back_end.await_prepared(gives_up) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
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
