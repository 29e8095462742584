//! The thread that publishes statistics of this process's guests, changes their limits, and serves
//! the control socket.
//!
//! The thread shares only the counters that it reads with the guests' threads
//! ([`causeway_vmm::observer`]), and sleeps until a monitor connects. Monitors are not trusted: the
//! number and duration of connections are limited, and the thread never waits for one. Module
//! `door` says who can connect where.

use std::cell::OnceCell;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_mediator::Quota;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use serde::Serialize;

use super::connection::{Connection, Question};
use super::control::{self, Control, ControlError};
use super::door::{Door, MetricsPlaces};
use super::http::{self, Action, Refusal, Request, Resource};
use super::limits::{LimitedGuest, Limits};
use super::openmetrics;
use super::runtime::{ProcessSocket, SocketError};
use super::snapshot::Snapshot;
use crate::listener::ListenError;

/// Maximum number of connections of each door at a time. Another connection ends the oldest
/// one.
const CONNECTIONS_MAX: usize = 16;
/// Pause after a connection could not be accepted. A guest may use up descriptors and return them.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between looks whether an answer that was put off can be given.
const LOOK: Duration = Duration::from_millis(2);

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
    /// The socket of `--control` cannot be created.
    #[error("invalid value {path} for --control", path = path.display())]
    Control {
        /// Path that `--control` names.
        path: PathBuf,
        /// Why no socket can be created there.
        source: ListenError,
    },
    /// The TCP address of `--metrics` cannot be used.
    #[error("invalid value {address} for --metrics")]
    Address {
        /// Address that `--metrics` names.
        address: SocketAddr,
        /// Why no process can listen there.
        source: ListenError,
    },
    /// The thread, or the event that stops it, cannot be created.
    #[error("cannot start the thread that publishes statistics")]
    Thread(#[source] io::Error),
}

/// What a process tells of its guests, and what of them can be changed.
pub struct Published {
    /// Returns a snapshot of the guests.
    pub look: Box<dyn Fn() -> Snapshot + Send>,
    /// Returns the guests that run.
    pub guests: Box<dyn Fn() -> Vec<LimitedGuest> + Send>,
    /// Returns what this process could run out of if all guests used all of these limits, as text
    /// for people; `None` if nothing.
    pub shortage: fn(&[Quota]) -> Option<String>,
    /// The VMs that the control socket reaches; `None` without such a socket.
    pub control: Option<Control>,
}

causeway_vmm::debug_by_name!(Published);

/// The places at which monitors will find this process. A drop removes their sockets.
#[derive(Debug)]
pub struct Doors(Vec<Door>);

impl Doors {
    /// Opens the socket of this process, for `causeway stat` and `causeway limit`, `metrics`, for
    /// scrapers, and the socket `control` of a run, if there is to be one. If the socket of this
    /// process cannot be created, this function logs a warning and goes on without that socket.
    /// Nobody is answered before [`Self::publish`].
    ///
    /// # Errors
    /// [`PublishError::Metrics`] or [`PublishError::Address`] if one of the places `metrics` cannot
    /// be used, [`PublishError::Control`] if the path `control` cannot.
    pub fn open(metrics: &MetricsPlaces, control: Option<&Path>) -> Result<Self, PublishError> {
        let mut doors = Door::open(metrics, control)?;
        let socket = ProcessSocket::new().inspect_err(unpublished);
        doors.extend(socket.ok().map(Door::Process));
        Ok(Self(doors))
    }

    /// Prepares for a process that will remove no files but in [`Self::folders`].
    ///
    /// # Errors
    /// The kernel's error, if a process cannot be started.
    pub fn keep(&mut self) -> io::Result<()> {
        self.0.iter_mut().try_for_each(Door::keep)
    }

    /// Returns the folders in which this process removes files at its end.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(Door::folder)
    }

    /// Starts the publisher thread, which answers from `published`.
    ///
    /// # Errors
    /// [`PublishError::Thread`] if no thread can be started.
    pub fn publish(self, published: Published) -> Result<Publisher, PublishError> {
        Publisher::serve(published, self.0)
    }
}

/// The thread that answers monitors. A drop ends the thread and removes its sockets.
#[derive(Debug)]
pub struct Publisher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts the thread that answers at `doors`.
    fn serve(published: Published, mut doors: Vec<Door>) -> Result<Self, PublishError> {
        let failed = PublishError::Thread;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let stop = Arc::new(stop);
        // The others are there all the same.
        doors.retain_mut(|door| match door.listen() {
            Ok(()) => true,
            Err(e) => {
                log::warn!("this process continues, but monitors cannot connect to {door:?}: {e}");
                false
            }
        });
        let server = Server {
            stop: Arc::clone(&stop),
            published,
            doors,
            connections: Vec::new(),
            paused_until: None,
        };
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

/// The answers to the requests that have come in at the same time.
struct Answers<'p> {
    published: &'p Published,
    /// Monitors that ask at the same time get the same snapshot, because a snapshot may wait for
    /// workers.
    seen: OnceCell<Snapshot>,
}

impl Answers<'_> {
    /// Returns the answer to what was asked at `door`; `None` to put it off.
    fn to(&self, door: &Door, question: Question<'_>) -> Option<Vec<u8>> {
        let request = match question {
            Question::Request(request) => request,
            Question::Again { is_last } => return self.stands(is_last),
        };
        match request {
            Request::Get { resource, body } if door.offers(resource) => {
                let content = self.content(resource);
                Some(http::answer(resource, &content, body))
            }
            Request::Put { resource, body } if door.offers(resource) => match resource {
                Resource::Action(action) => self.act(action, body),
                _ => Some(self.change(body, door.refuses_in_json())),
            },
            Request::Refused(Refusal::Method(resource)) if !door.offers(resource) => {
                Some(refuse(door, Refusal::NotFound(resource.path())))
            }
            Request::Refused(refusal) => Some(refuse(door, refusal)),
            Request::Get { resource, .. } | Request::Put { resource, .. } => {
                Some(refuse(door, Refusal::NotFound(resource.path())))
            }
            Request::Unfinished => None,
        }
    }

    fn content(&self, resource: Resource) -> String {
        let look = || self.seen.get_or_init(&self.published.look);
        match resource {
            Resource::Metrics => openmetrics::render(look()),
            Resource::Snapshot => json(look()),
            Resource::Limits => json(&Limits::of(&(self.published.guests)())),
            Resource::Info | Resource::Action(_) => self.standing(),
        }
    }

    fn standing(&self) -> String {
        let control = self.published.control.as_ref();
        control.map_or_else(String::new, |control| json(&control.standing()))
    }

    /// Carries out a request at the control socket.
    fn act(&self, action: Action, body: &[u8]) -> Option<Vec<u8>> {
        let done = match &self.published.control {
            Some(control) => control.act(action, body),
            None => Err(ControlError::Stopping),
        };
        match done {
            Ok(()) if action == Action::Pause => self.stands(false),
            Ok(()) => Some(http::answer(
                Resource::Action(action),
                &self.standing(),
                true,
            )),
            Err(error) => {
                let body = control::error_body(&error.to_string());
                Some(http::json(error.status(), "", &body, true))
            }
        }
    }

    /// Returns how the run stands after a request to pause, or `None` while a VM is about to pause,
    /// unless this is the last time.
    fn stands(&self, is_last: bool) -> Option<Vec<u8>> {
        let control = self.published.control.as_ref();
        let status = match control.is_none_or(Control::is_settled) {
            true => "200 OK",
            false if is_last => "202 Accepted",
            false => return None,
        };
        Some(http::json(status, "", &self.standing(), true))
    }

    fn shortage(&self, guests: &[LimitedGuest]) -> Option<String> {
        let quotas = guests.iter().map(|guest| guest.session.limits());
        (self.published.shortage)(&quotas.collect::<Vec<_>>())
    }

    /// Changes limits of guests. `in_json` says how a refusal is told.
    fn change(&self, change: &[u8], in_json: bool) -> Vec<u8> {
        let guests = (self.published.guests)();
        let before = self.shortage(&guests);
        match Limits::change(&guests, change) {
            Ok(mut limits) => {
                limits.warning = self
                    .shortage(&guests)
                    .filter(|now| Some(now) != before.as_ref());
                limits
                    .warning
                    .iter()
                    .for_each(|warning| log::warn!("{warning}"));
                http::answer(Resource::Limits, &json(&limits), true)
            }
            Err(error) if in_json => {
                http::refuse_change_in_json(&control::error_body(&error.to_string()))
            }
            Err(error) => http::refuse_change(&error.to_string()),
        }
    }
}

fn json(content: &impl Serialize) -> String {
    serde_json::to_string(content).unwrap_or_default()
}

/// Returns the answer to a request at `door` that is refused.
fn refuse(door: &Door, refusal: Refusal<'_>) -> Vec<u8> {
    match door.refuses_in_json() {
        true => {
            let text = control::refusal_text(refusal);
            http::refuse_in_json(refusal, &control::error_body(&text))
        }
        false => http::refuse(refusal),
    }
}

struct Server {
    stop: Arc<OwnedFd>,
    published: Published,
    doors: Vec<Door>,
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
        let answers = Answers {
            published: &self.published,
            seen: OnceCell::new(),
        };
        let now = Instant::now();
        let mut index = 0;
        let doors = &self.doors;
        self.connections.retain_mut(|connection| {
            let events = ready.get(index).copied().unwrap_or(PollFlags::empty());
            let is_ready = !events.is_empty();
            index += 1;
            let door = &doors[connection.door];
            let respond = |question: Question<'_>| answers.to(door, question);
            let is_finished = match connection.is_waiting() {
                // It has hung up.
                true if is_ready => true,
                true => connection.advance(respond),
                // Its peer has given up, and was told so: nothing may be done for it any more.
                false if events.contains(PollFlags::HUP) => true,
                false => is_ready && connection.advance(respond),
            };
            connection.deadline() > now && !is_finished
        });
        self.paused_until = self.paused_until.filter(|until| *until > now);
        if self.paused_until.is_none() {
            self.admit(now);
        }
        Ok(true)
    }

    /// Waits for an event. Returns what happened to each connection, and whether the publisher is
    /// to end.
    fn wait(&self) -> Result<(Vec<PollFlags>, bool), Errno> {
        let mut polled = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        let connections = self.connections.iter();
        polled.extend(connections.map(|c| PollFd::new(c, c.awaited())));
        let listened = match self.paused_until {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        polled.extend(self.doors.iter().map(|door| PollFd::new(door, listened)));
        let now = Instant::now();
        let deadlines = self.connections.iter().map(Connection::deadline);
        let is_waiting = self.connections.iter().any(Connection::is_waiting);
        let look = is_waiting.then(|| now + LOOK);
        let soonest = deadlines.chain(self.paused_until).chain(look).min();
        let timeout = soonest.map(|deadline| deadline.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        let stopping = !polled[0].revents().is_empty();
        let connections = polled[1..].iter().take(self.connections.len());
        Ok((connections.map(PollFd::revents).collect(), stopping))
    }

    /// Accepts waiting connections.
    fn admit(&mut self, now: Instant) {
        let mut taken = Vec::new();
        let mut refused = false;
        for (number, door) in self.doors.iter().enumerate() {
            // Other connections are served first.
            for _ in 0..CONNECTIONS_MAX {
                match door.accept() {
                    Ok(socket) => taken.extend(socket.map(|socket| (number, socket))),
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
        for (door, socket) in taken {
            self.take(Connection::new(door, socket, now));
        }
    }

    /// Adds a connection. If its door has too many, the oldest one is closed.
    fn take(&mut self, connection: Connection) {
        let is_same = |other: &Connection| other.door == connection.door;
        let same = self.connections.iter().filter(|other| is_same(other));
        if same.count() >= CONNECTIONS_MAX
            && let Some(oldest) = self.connections.iter().position(is_same)
        {
            self.connections.remove(oldest);
        }
        self.connections.push(connection);
    }
}

#[cfg(test)]
mod tests;
