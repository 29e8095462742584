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
/// Bytes that are received at a time.
const PIECE_BYTES: usize = 2 << 10;

/// Phase of a connection.
enum Phase {
    /// The received part of the request.
    Asking(Vec<u8>),
    /// The answer, and the number of bytes that were sent.
    Answering(Vec<u8>, usize),
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
            Phase::Answering(..) => PollFlags::OUT,
        }
    }

    /// Receives the request and sends the answer as far as possible without waiting. `respond`
    /// returns the answer to a request that is complete. Returns true if the connection is
    /// finished.
    pub fn advance(&mut self, respond: impl FnOnce(Request<'_>) -> Vec<u8>) -> bool {
        if let Phase::Asking(received) = &mut self.phase {
            let answer = match receive(&self.socket, received) {
                Ok(true) => match http::parse(received) {
                    Request::Unfinished => return false,
                    request => respond(request),
                },
                Ok(false) => return false,
                Err(_) => return true,
            };
            self.phase = Phase::Answering(answer, 0);
        }
        let Phase::Answering(answer, sent) = &mut self.phase else {
            return true;
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
