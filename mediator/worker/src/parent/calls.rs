//! Calls that a worker makes, over a lane or over the spare socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use causeway_protocol::Access;
use causeway_protocol::message::Status;
use zerocopy::IntoBytes;

use super::broker::Import;
use super::worker::Worker;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Answer, Fetch, Kind, Registration, Withdraw};

/// Over what a worker has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Lane,
    Spare,
}

/// Whether a datagram is a call of the worker's, and no reply.
pub(super) fn is_call(kind: Kind) -> bool {
    (Kind::Place as u16..Kind::Answer as u16).contains(&(kind as u16))
}

impl Worker {
    /// Does what the worker asks for.
    pub(super) fn answer(
        &self,
        call: &mut Datagram<'_>,
        caller: Caller,
    ) -> Result<(Answer, Option<Arc<OwnedFd>>), SocketError> {
        let guest = &self.guest;
        let answer = match call.kind {
            Kind::Place => {
                let file = call.descriptor()?;
                guest.place(&call.body()?, file)
            }
            Kind::SetAccess => guest.set_access(&call.body()?),
            Kind::Remove => guest.remove(&call.body()?),
            Kind::BindDoorbell => {
                let [event, ring] = call.descriptors()?;
                guest.bind_doorbell(&call.body()?, event, ring)
            }
            Kind::UnbindDoorbell => guest.unbind_doorbell(&call.body()?),
            Kind::Raise => guest.raise(&call.body()?),
            _ => return self.share(call, caller),
        };
        Ok((answer, None))
    }

    /// Does what the worker asks for of the exchange.
    fn share(
        &self,
        call: &mut Datagram<'_>,
        caller: Caller,
    ) -> Result<(Answer, Option<Arc<OwnedFd>>), SocketError> {
        let said =
            |done: bool| Answer::new(if done { Status::Ok } else { Status::BadToken } as u32);
        let answer = match call.kind {
            Kind::Publish => {
                let file = call.descriptor()?;
                let most = self.exports_max;
                match self.broker.publish(self.number, most, &call.body()?, file) {
                    Ok(token) => Answer {
                        token,
                        ..said(true)
                    },
                    Err(status) => Answer::new(status as u32),
                }
            }
            Kind::Fetch => return Ok(self.fetch(&call.body()?)),
            Kind::Register => {
                let request: Registration = call.body()?;
                let import = Import {
                    worker: Weak::clone(&self.weak),
                    owner: self.number,
                    handle: request.handle,
                    import: request.import,
                };
                said(self.broker.register(&request.token, import))
            }
            Kind::Forget => {
                let request: Registration = call.body()?;
                self.broker
                    .forget(&request.token, self.number, request.import);
                said(true)
            }
            Kind::Withdraw => {
                let request: Withdraw = call.body()?;
                // It calls into other workers. The spare socket must stay free for what they may be waiting for.
                said(caller == Caller::Lane && self.broker.withdraw(&request.token, self.number))
            }
            _ => return Err(SocketError::Malformed("it asked for what nobody does")),
        };
        Ok((answer, None))
    }

    fn fetch(&self, request: &Fetch) -> (Answer, Option<Arc<OwnedFd>>) {
        let access = Access::from_wire(request.access).ok_or(Status::BadAccess);
        match access.and_then(|access| self.broker.fetch(&request.token, access)) {
            Ok(offer) => {
                let mut answer = Answer::new(Status::Ok as u32);
                answer.value = offer.bytes;
                answer.memory = offer.memory;
                (answer, Some(offer.file))
            }
            Err(status) => (Answer::new(status as u32), None),
        }
    }
}

/// Sends how a call went.
pub(super) fn send_answer(
    socket: &Socket,
    answer: &Answer,
    file: Option<&OwnedFd>,
) -> Result<(), SocketError> {
    let file = file.map(AsFd::as_fd);
    socket.send(Kind::Answer, &[answer.as_bytes()], file.as_slice())
}

/// Serves calls of threads of the worker that have no lane, and notices the worker's end.
pub(super) fn serve_spare(worker: &Arc<Worker>, spare: Socket) -> io::Result<()> {
    let weak = Arc::downgrade(worker);
    let name = format!("{:.9}/calls", worker.name);
    let thread = std::thread::Builder::new().name(name);
    thread
        .spawn(move || {
            let mut room = buffer();
            loop {
                let received = spare.receive(&mut room);
                let Some(worker) = weak.upgrade() else { return };
                let served = match received {
                    Ok(mut call) => worker
                        .answer(&mut call, Caller::Spare)
                        .and_then(|(answer, file)| send_answer(&spare, &answer, file.as_deref())),
                    Err(SocketError::Nothing) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = served {
                    worker.give_up(&error);
                    return;
                }
            }
        })
        .map(drop)
}
