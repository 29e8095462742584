//! The thread that publishes statistics of this process's guests.
//!
//! The thread shares only the counters that it reads with the guests' threads
//! ([`causeway_vmm::observer`]), and sleeps until a monitor connects. Only processes of the same
//! user or of root can connect. They are not trusted: the number and duration of connections are
//! limited, and the thread never waits for one.

use std::cell::OnceCell;
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

use super::connection::Connection;
use super::http::Resource;
use super::openmetrics;
use super::runtime::{ProcessSocket, SocketError};
use super::snapshot::Snapshot;
use crate::listener::{ListenError, Listener};

/// Maximum number of connections of each listener at a time. Another connection ends the oldest
/// one.
const CONNECTIONS_MAX: usize = 16;
/// Pause after a connection could not be accepted. A guest may use up descriptors and return them.
const PAUSE: Duration = Duration::from_millis(100);

/// Why statistics cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The socket of `--metrics-socket` cannot be created.
    #[error("invalid value {path} for --metrics-socket", path = path.display())]
    Metrics {
        /// Path that `--metrics-socket` names.
        path: PathBuf,
        /// Why no socket can be created there.
        source: ListenError,
    },
    /// The thread, or the event that stops it, cannot be created.
    #[error("cannot start the thread that publishes statistics")]
    Thread(#[source] io::Error),
}

/// Returns a snapshot of the guests.
type Look = Box<dyn Fn() -> Snapshot + Send>;

/// The thread that answers monitors. A drop ends the thread and removes its sockets.
#[derive(Debug)]
pub struct Publisher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts the publisher thread. It calls `look` to take a snapshot for each answer, and answers
    /// `causeway stat` on the socket of this process, and scrapers on a socket at path `metrics`,
    /// if given. If the socket of this process cannot be created, this function logs a warning and
    /// goes on without that socket.
    ///
    /// # Errors
    /// [`PublishError::Metrics`] if the socket at `metrics` cannot be created;
    /// [`PublishError::Thread`] if no thread can be started.
    pub fn start(look: Look, metrics: Option<&Path>) -> Result<Self, PublishError> {
        let metrics = metrics.map(bind).transpose()?;
        let published = ProcessSocket::new().inspect_err(unpublished).ok();
        let failed = PublishError::Thread;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let stop = Arc::new(stop);
        let server = Server {
            stop: Arc::clone(&stop),
            look,
            published,
            metrics,
            connections: Vec::new(),
            paused_until: None,
        };
        for listener in server.listeners() {
            rustix::io::ioctl_fionbio(listener, true).map_err(|e| failed(e.into()))?;
        }
        let thread = std::thread::Builder::new()
            .name("publisher".into())
            .spawn(move || server.run())
            .map_err(failed)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (told, self.thread.take())
            && thread.join().is_err()
        {
            log::error!("the thread that publishes statistics panicked; this is a bug in Causeway");
        }
    }
}

fn unpublished(error: &SocketError) {
    let cause = error.source().map_or_else(String::new, ToString::to_string);
    log::warn!("this process continues, but `causeway stat` cannot find it: {error}: {cause}");
}

fn bind(path: &Path) -> Result<Listener, PublishError> {
    Listener::bind_stream(path).map_err(|source| PublishError::Metrics {
        path: path.to_owned(),
        source,
    })
}

struct Server {
    stop: Arc<OwnedFd>,
    look: Look,
    published: Option<ProcessSocket>,
    metrics: Option<Listener>,
    connections: Vec<Connection>,
    /// Time at which connections are accepted again, during a pause.
    paused_until: Option<Instant>,
}

impl Server {
    fn run(mut self) {
        loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => {
                    return log::warn!(
                        "cannot publish statistics any more, so `causeway stat` and metrics \
                         scrapers get none from this process: {e}"
                    );
                }
            }
        }
    }

    /// Waits for events and handles them. Returns false if the publisher is to end.
    fn turn(&mut self) -> Result<bool, Errno> {
        let (ready, stopping) = self.wait()?;
        if stopping {
            return Ok(false);
        }
        // Monitors that ask at the same time get the same snapshot, because a snapshot may wait for
        // workers.
        let seen = OnceCell::new();
        let look = || seen.get_or_init(&self.look);
        let content = |resource| match resource {
            Resource::Metrics => openmetrics::render(look()),
            Resource::Snapshot => serde_json::to_string(look()).unwrap_or_default(),
        };
        let now = Instant::now();
        let mut index = 0;
        self.connections.retain_mut(|connection| {
            let is_ready = ready.get(index).copied().unwrap_or(false);
            index += 1;
            connection.deadline() > now && !(is_ready && connection.advance(content))
        });
        self.paused_until = self.paused_until.filter(|until| *until > now);
        if self.paused_until.is_none() {
            self.admit(now);
        }
        Ok(true)
    }

    /// Waits for an event. Returns which connections can continue, and whether the publisher is to
    /// end.
    fn wait(&self) -> Result<(Vec<bool>, bool), Errno> {
        let mut polled = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        let connections = self.connections.iter();
        polled.extend(connections.map(|c| PollFd::new(c, c.awaited())));
        let listened = match self.paused_until {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        polled.extend(self.listeners().map(|l| PollFd::new(l, listened)));
        let now = Instant::now();
        let deadlines = self.connections.iter().map(Connection::deadline);
        let soonest = deadlines.chain(self.paused_until).min();
        let timeout = soonest.map(|deadline| deadline.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        let ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let stopping = ready(&polled[0]);
        let connections = polled[1..].iter().take(self.connections.len());
        Ok((connections.map(ready).collect(), stopping))
    }

    fn listeners(&self) -> impl Iterator<Item = &Listener> {
        let published = self.published.as_ref().and_then(ProcessSocket::listener);
        published.into_iter().chain(&self.metrics)
    }

    /// Accepts waiting connections.
    fn admit(&mut self, now: Instant) {
        let mut taken = Vec::new();
        let mut refused = false;
        for (number, listener) in self.listeners().enumerate() {
            // Other connections are served first.
            for _ in 0..CONNECTIONS_MAX {
                match listener.accept() {
                    Ok(socket) => taken.push((number, socket)),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(e) => {
                        log::debug!("a monitor could not connect: {e}");
                        refused = true;
                        break;
                    }
                }
            }
        }
        self.paused_until = refused.then(|| now + PAUSE);
        for (listener, socket) in taken {
            if is_trusted(&socket) && rustix::io::ioctl_fionbio(&socket, true).is_ok() {
                self.take(Connection::new(listener, socket, now));
            }
        }
    }

    /// Adds a connection. If the listener has too many, the oldest one is closed.
    fn take(&mut self, connection: Connection) {
        let is_same = |other: &Connection| other.listener == connection.listener;
        let same = self.connections.iter().filter(|other| is_same(other));
        if same.count() >= CONNECTIONS_MAX
            && let Some(oldest) = self.connections.iter().position(is_same)
        {
            self.connections.remove(oldest);
        }
        self.connections.push(connection);
    }
}

/// Returns whether the peer is a process of this user or of root. The mode of the socket ensures
/// the same, unless it was changed.
fn is_trusted(socket: &OwnedFd) -> bool {
    let uid = socket_peercred(socket).map(|peer| peer.uid);
    let trusted = uid.is_ok_and(|uid| uid.is_root() || uid == rustix::process::geteuid());
    if !trusted {
        log::debug!("refused a process of another user: {uid:?}");
    }
    trusted
}
