//! Calls from the worker back to its VMM.
//!
//! A thread that serves a channel calls over that channel: at its other end, the virtual CPU's
//! thread waits for a reply and serves calls meanwhile. Every other thread calls over the spare
//! channel, which a thread of the VMM serves.

use std::cell::RefCell;
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

    /// Calls, and waits for the answer. Ends the process if the VMM has ended.
    fn call(
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

thread_local! {
    /// The channel that this thread serves.
    static CHANNEL: RefCell<Option<Arc<CallChannel>>> = const { RefCell::new(None) };
}

/// Makes calls of this thread go over `channel` from now on.
pub(super) fn serve_channel(channel: &Arc<CallChannel>) {
    CHANNEL.with(|own| *own.borrow_mut() = Some(Arc::clone(channel)));
}

/// All ways to call the VMM.
pub(super) struct Calls {
    spare: Arc<CallChannel>,
}

impl Calls {
    pub fn new(spare: Socket) -> Arc<Self> {
        Arc::new(Self {
            spare: CallChannel::new(spare),
        })
    }

    /// Sends a call to the VMM, over the channel of this thread or the spare one, and returns the
    /// answer.
    pub fn call(
        &self,
        kind: Kind,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> (Answer, Option<OwnedFd>) {
        // A thread that is ending has no channel.
        let channel = CHANNEL
            .try_with(|channel| channel.borrow().clone())
            .ok()
            .flatten();
        channel
            .as_ref()
            .unwrap_or(&self.spare)
            .call(kind, body, descriptors)
    }
}
