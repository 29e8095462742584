//! One who asks: a connection that must not hold anything up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::http::{self, REQUEST_BYTES_MAX, Request, Resource};

/// Longest that a connection may last, answer included.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that are taken at a time.
const PIECE_BYTES: usize = 2 << 10;

/// Where it stands.
enum Phase {
    /// What has come of the request.
    Asking(Vec<u8>),
    /// The answer, and how much of it has gone.
    Answering(Vec<u8>, usize),
}

/// A connection.
pub struct Connection {
    /// Which listener it came to.
    pub listener: usize,
    socket: OwnedFd,
    deadline: Instant,
    phase: Phase,
}

impl Connection {
    /// Takes a socket that does not block. `begun` is now.
    pub fn new(listener: usize, socket: OwnedFd, begun: Instant) -> Self {
        Self {
            listener,
            socket,
            deadline: begun + PATIENCE,
            phase: Phase::Asking(Vec::new()),
        }
    }

    /// When it is over, whatever comes.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What to wait for.
    pub fn awaited(&self) -> PollFlags {
        match self.phase {
            Phase::Asking(_) => PollFlags::IN,
            Phase::Answering(..) => PollFlags::OUT,
        }
    }

    /// Goes on as far as it goes without waiting. True if the connection is of no use any more.
    pub fn advance(&mut self, content: impl FnOnce(Resource) -> String) -> bool {
        if let Phase::Asking(received) = &mut self.phase {
            let answer = match receive(&self.socket, received) {
                Ok(true) => match http::parse(received) {
                    Request::Unfinished => return false,
                    Request::Get { resource, body } => {
                        http::answer(resource, &content(resource), body)
                    }
                    Request::Refused(refusal) => http::refuse(refusal),
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

/// Takes what has come, up to the longest request. False if nothing has.
fn receive(socket: &OwnedFd, received: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; PIECE_BYTES];
    let mut any = false;
    while received.len() < REQUEST_BYTES_MAX {
        let room = PIECE_BYTES.min(REQUEST_BYTES_MAX - received.len());
        match rustix::net::recv(socket, &mut piece[..room], RecvFlags::DONTWAIT) {
            // Nobody will say more; what there is may be enough all the same.
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

/// Sends what there is room for. True if that was the rest.
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
