//! Calls from the worker back to its VMM.
//!
//! A thread that serves a channel calls over that channel: at its other end, the virtual CPU's
//! thread waits for a reply and serves calls meanwhile. Every other thread calls over the spare
//! channel, which a thread of the VMM serves; so does every thread that unbinds a doorbell. The
//! session is given the channel with each request ([`causeway_mediator::Peers`]).

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;

use super::process::end_now;
use crate::socket::{Buffer, Socket, SocketError, buffer};
use crate::wire::{Answer, Kind};

/// A call channel: a socket that is used for one call at a time.
pub(super) struct CallChannel {
    pub socket: Socket,
    /// Room for an answer, and the right to wait for one.
    room: Mutex<Buffer>,
}

impl CallChannel {
    pub fn new(socket: Socket) -> Arc<Self> {
        Arc::new(Self {
            socket,
            room: Mutex::new(buffer()),
        })
    }

    /// Sends a call of kind `kind` to the VMM, and waits for its answer, which may come with a file
    /// descriptor. Ends this process if the VMM has ended or breaks the protocol.
    pub fn call(
        &self,
        kind: Kind,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> (Answer, Option<OwnedFd>) {
        let mut room = self.room.lock();
        if self.socket.send(kind, &[body], descriptors).is_err() {
            end_now();
        }
        loop {
            match self.socket.receive(&mut room) {
                Ok(mut datagram) => match (datagram.kind, datagram.body()) {
                    (Kind::Answer, Ok(answer)) => return (answer, datagram.descriptors.pop()),
                    _ => end_now(),
                },
                Err(SocketError::Timeout) => {}
                Err(_) => end_now(),
            }
        }
    }
}
