//! A connection of a monitor. It never blocks the publisher.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::http::{self, REQUEST_BYTES_MAX, Request};

/// Maximum duration of a monitor's connection, from its acceptance to the end of the answer.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Time before the end of a connection at which an answer that was put off is sent in any case.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Bytes that are received at a time.
const PIECE_BYTES: usize = 2 << 10;

/// Phase of a connection.
enum Phase {
    /// The received part of the request.
    Asking(Vec<u8>),
    /// The request is complete, and its answer was put off.
    Waiting,
    /// The answer, and the number of bytes that were sent.
    Answering(Vec<u8>, usize),
}

/// What a connection wants an answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// A request that is complete.
    Request(Request<'a>),
    /// The request whose answer was put off.
    Again {
        /// Whether the answer cannot be put off any longer.
        is_last: bool,
    },
}

/// A connection of a monitor, which sends one request and receives one answer.
pub struct Connection {
    /// Index of the door at which the connection was accepted.
    pub door: usize,
    socket: OwnedFd,
    deadline: Instant,
    phase: Phase,
}

impl Connection {
    /// Returns a connection over `socket`, which must be nonblocking. `door` is the index of the
    /// door at which it was accepted, `begun` the current time.
    pub fn new(door: usize, socket: OwnedFd, begun: Instant) -> Self {
        Self {
            door,
            socket,
            deadline: begun + PATIENCE,
            phase: Phase::Asking(Vec::new()),
        }
    }

    /// Returns the time at which the connection is closed even if its answer is not complete.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the poll events for which the caller waits before it calls [`Self::advance`] again.
    pub fn awaited(&self) -> PollFlags {
        match self.phase {
            Phase::Asking(_) => PollFlags::IN,
            // That the peer has hung up is told in any case.
            Phase::Waiting => PollFlags::empty(),
            Phase::Answering(..) => PollFlags::OUT,
        }
    }

    /// Returns whether the connection waits for an answer that was put off.
    pub fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }

    /// Receives the request and sends the answer as far as possible without waiting. `respond`
    /// returns the answer, or `None` to put it off, but for the last time. Returns true if the
    /// connection is finished.
    pub fn advance(&mut self, respond: impl FnOnce(Question<'_>) -> Option<Vec<u8>>) -> bool {
        let answer = match &mut self.phase {
            Phase::Asking(received) => match receive(&self.socket, received) {
                Ok(true) => match http::parse(received) {
                    Request::Unfinished => return false,
                    request => respond(Question::Request(request)),
                },
                Ok(false) => return false,
                Err(_) => return true,
            },
            Phase::Waiting => {
                let is_last = Instant::now() + LAST_MOMENT >= self.deadline;
                respond(Question::Again { is_last })
            }
            Phase::Answering(..) => return self.send(),
        };
        self.phase = match answer {
            Some(answer) => Phase::Answering(answer, 0),
            None => Phase::Waiting,
        };
        self.send()
    }

    /// Sends the answer as far as possible, if there is one. Returns true if the connection is
    /// finished.
    fn send(&mut self) -> bool {
        let Phase::Answering(answer, sent) = &mut self.phase else {
            return false;
        };
        send(&self.socket, answer, sent).unwrap_or(true)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Receives available bytes, up to the longest request. Returns false if there are none.
fn receive(socket: &OwnedFd, received: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; PIECE_BYTES];
    let mut any = false;
    while received.len() < REQUEST_BYTES_MAX {
        let room = PIECE_BYTES.min(REQUEST_BYTES_MAX - received.len());
        match rustix::net::recv(socket, &mut piece[..room], RecvFlags::DONTWAIT) {
            // The peer sends no more; the received bytes may still be a whole request.
            Ok((0, _)) if any => break,
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((bytes, _)) => {
                received.extend_from_slice(&piece[..bytes]);
                any = true;
            }
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(any)
}

/// Sends as many bytes as fit. Returns true after the last byte.
fn send(socket: &OwnedFd, answer: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < answer.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &answer[*sent..], flags) {
            Ok(bytes) => *sent += bytes,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}
