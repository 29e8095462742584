//! Calls from the worker back to its VMM.
//!
//! A thread that serves a lane calls on that lane: the virtual CPU at its other end waits for the reply to its request,
//! and serves calls meanwhile. Every other thread uses the spare socket, which a thread of the VMM serves.

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::end_now;
use crate::socket::{Buffer, Socket, SocketError, buffer};
use crate::wire::{Answer, Kind};

/// A socket, used for one call at a time.
pub(super) struct Line {
    pub socket: Socket,
    /// Room for an answer, and the right to wait for one.
    room: Mutex<Buffer>,
}

impl Line {
    pub fn new(socket: Socket) -> Arc<Self> {
        Arc::new(Self {
            socket,
            room: Mutex::new(buffer()),
        })
    }

    /// Asks and waits for the answer. A VMM that does not answer is gone, and this process has no more purpose.
    fn call(
        &self,
        kind: Kind,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> (Answer, Option<OwnedFd>) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if self.socket.send(kind, &[body], descriptors).is_err() {
            end_now();
        }
        loop {
            match self.socket.receive(&mut room) {
                Ok(mut datagram) => match (datagram.kind, datagram.body()) {
                    (Kind::Answer, Ok(answer)) => return (answer, datagram.descriptors.pop()),
                    _ => end_now(),
                },
                Err(SocketError::Nothing) => {}
                Err(_) => end_now(),
            }
        }
    }
}

thread_local! {
    /// The lane that this thread serves.
    static LANE: RefCell<Option<Arc<Line>>> = const { RefCell::new(None) };
}

/// Has calls of this thread go over `lane` from now on.
pub(super) fn serve_lane(lane: &Arc<Line>) {
    LANE.with(|own| *own.borrow_mut() = Some(Arc::clone(lane)));
}

/// The way to the VMM.
pub(super) struct Calls {
    spare: Arc<Line>,
}

impl Calls {
    pub fn new(spare: Socket) -> Arc<Self> {
        Arc::new(Self {
            spare: Line::new(spare),
        })
    }

    /// Asks the VMM.
    pub fn call(
        &self,
        kind: Kind,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> (Answer, Option<OwnedFd>) {
        // A thread that is ending has no lane any more.
        let lane = LANE.try_with(|lane| lane.borrow().clone()).ok().flatten();
        lane.as_ref()
            .unwrap_or(&self.spare)
            .call(kind, body, descriptors)
    }
}
