//! Calls that a worker makes, over a channel on which the VMM waits or over the spare channel.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use causeway_mediator::GpuSet;
use causeway_mediator::rights::Party;
use causeway_mediator::share::TokenBytes;
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use zerocopy::IntoBytes;

use super::broker::Import;
use super::objects::{ObjectKey, Overdraft};
use super::refused::Refused;
use super::worker::Worker;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Answer, Fetch, Kind, Publish, Registration, Withdraw};

/// Which thread of the VMM serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// One that waits for the reply to a request.
    Waiting,
    /// The one of the spare channel.
    Spare,
}

/// Returns whether a datagram is a call of the worker, and not a reply.
pub(super) fn is_call(kind: Kind) -> bool {
    (Kind::Place as u16..Kind::Answer as u16).contains(&(kind as u16))
}

impl Worker {
    /// Serves a call. One whose descriptors found no room in the VMM is refused: that is not the
    /// worker's doing.
    pub(super) fn answer(
        &self,
        call: &mut Datagram<'_>,
        caller: Caller,
    ) -> Result<(Answer, Option<Arc<OwnedFd>>), SocketError> {
        match self.serve(call, caller) {
            Err(SocketError::Shortage) if call.kind == Kind::Publish => {
                log::warn!("cannot export memory: {}", Overdraft::Descriptors);
                Ok((Answer::new(Status::NoMemory as u32), None))
            }
            Err(SocketError::Shortage) => Ok((Refused::from(Overdraft::Descriptors).0, None)),
            served => served,
        }
    }

    fn serve(
        &self,
        call: &mut Datagram<'_>,
        caller: Caller,
    ) -> Result<(Answer, Option<Arc<OwnedFd>>), SocketError> {
        let guest = &self.guest;
        let answered = match call.kind {
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
            Kind::UnbindDoorbell => Ok(guest.unbind_doorbell(&call.body()?)),
            Kind::Raise => guest.raise(&call.body()?),
            _ => return self.share(call, caller),
        };
        Ok((answered.unwrap_or_else(|Refused(answer)| answer), None))
    }

    /// Serves a call to the exchange.
    fn share(
        &self,
        call: &mut Datagram<'_>,
        caller: Caller,
    ) -> Result<(Answer, Option<Arc<OwnedFd>>), SocketError> {
        let answer_if =
            |done: bool| Answer::new(if done { Status::Ok } else { Status::BadToken } as u32);
        let answer = match call.kind {
            Kind::Publish => {
                let file = call.descriptor()?;
                match self.publish(&call.body()?, file) {
                    Ok(token) => Answer {
                        token,
                        ..answer_if(true)
                    },
                    Err(status) => Answer::new(status as u32),
                }
            }
            Kind::Fetch => return Ok(self.fetch(&call.body()?)),
            Kind::Register => {
                let request: Registration = call.body()?;
                let import = Import {
                    worker: self.weak.clone(),
                    party: self.party(),
                    handle: request.handle,
                    import: request.import,
                };
                let registered = self.broker.register(&request.token, import);
                if let Some(export) = registered {
                    let grants = &self.grants;
                    grants.import(export.owner.gpu, export.access, export.bytes);
                }
                answer_if(registered.is_some())
            }
            Kind::Forget => {
                let request: Registration = call.body()?;
                let (broker, number) = (&self.broker, self.number);
                let object = broker.forget(&request.token, number, request.import);
                self.restrict(object);
                answer_if(true)
            }
            Kind::Withdraw => {
                let request: Withdraw = call.body()?;
                // It calls into other workers. The spare channel must stay free for what they wait
                // for.
                answer_if(caller == Caller::Waiting && self.withdraw(&request.token))
            }
            _ => return Err(SocketError::Malformed("it sent a call of an unknown kind")),
        };
        Ok((answer, None))
    }

    fn party(&self) -> Party {
        Party {
            session: self.number,
            gpu: self.gpu,
        }
    }

    fn publish(&self, request: &Publish, file: OwnedFd) -> Result<TokenBytes, Status> {
        let (made_of, kind, access) = request.memory.checked().ok_or(Status::BadMemory)?;
        // Its session has checked that. A worker that was taken over has not.
        let is_for_others = GpuSet::from_bits(request.gpus) != GpuSet::only(self.gpu);
        let is_visible = [made_of, kind].contains(&MemoryKind::DeviceVisible);
        // Only a software back end has memory of a device that is made of host memory.
        let is_of_device = made_of != MemoryKind::Host && kind == MemoryKind::Host;
        if is_visible && is_for_others || is_of_device {
            return Err(Status::BadMemory);
        }
        let (number, most) = (self.number, self.limits.quota().allocations);
        let object = match made_of {
            MemoryKind::Host => {
                let held = self.guest.export(&file, request.memory.pages);
                Some(held.map_err(|_| Status::NoMemory)?)
            }
            _ => None,
        };
        let published = self
            .broker
            .publish(self.party(), most, request, file, object);
        if let (Err(_), Some((object, _))) = (&published, object) {
            self.guest.end_export(object);
        }
        // The end of a worker withdraws what it has exported so far.
        if let Ok(token) = &published
            && self.guest.has_ended()
        {
            let _ = self.broker.withdraw(token, number);
            return Err(Status::DeviceLost);
        }
        if published.is_ok() {
            let gpus = GpuSet::from_bits(request.gpus);
            self.grants.export(gpus, access, request.bytes);
        }
        published
    }

    fn withdraw(&self, token: &TokenBytes) -> bool {
        let withdrawn = self.broker.withdraw(token, self.number);
        if let Ok(Some(object)) = withdrawn {
            self.guest.end_export(object);
        }
        withdrawn.is_ok()
    }

    /// Takes from the guest what the worker's imports no longer allow. A worker whose guest cannot
    /// be kept from it ends.
    pub(super) fn restrict(&self, object: Option<ObjectKey>) {
        let restricted = object.map(|object| self.guest.restrict(object));
        if let Some(Err(error)) = restricted {
            log::error!(
                "{}: cannot take memory of another VM away: {error}",
                self.name
            );
            self.process.finish();
            self.guest.end();
        }
    }

    fn fetch(&self, request: &Fetch) -> (Answer, Option<Arc<OwnedFd>>) {
        let access = Access::from_wire(request.access).ok_or(Status::BadAccess);
        match access.and_then(|access| self.broker.fetch(&request.token, access, self.gpu)) {
            Ok(offer) => {
                let mut answer = Answer::new(Status::Ok as u32);
                answer.value = offer.bytes;
                answer.memory = offer.memory;
                answer.gpu = offer.home;
                (answer, Some(offer.file))
            }
            Err(status) => (Answer::new(status as u32), None),
        }
    }
}

/// Sends the outcome of a call.
pub(super) fn send_answer(
    socket: &Socket,
    answer: &Answer,
    file: Option<&OwnedFd>,
) -> Result<(), SocketError> {
    let send = |answer: &Answer, file: Option<&OwnedFd>| {
        let file = file.map(AsFd::as_fd);
        socket.send(Kind::Answer, &[answer.as_bytes()], file.as_slice())
    };
    match send(answer, file) {
        // Others of this user have too many descriptors under way.
        Err(error) if error.is_shortage() && file.is_some() => {
            send(&Answer::new(Status::NoMemory as u32), None)
        }
        sent => sent,
    }
}

/// The thread that serves calls of worker threads which serve no channel, and that notices when the
/// worker ends. Dropping this ends the thread.
pub(super) struct SpareThread {
    socket: Arc<Socket>,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<()>>,
}

impl SpareThread {
    /// Starts the thread of `worker`.
    pub fn start(worker: &Arc<Worker>, spare: Socket) -> io::Result<Self> {
        let (socket, weak) = (Arc::new(spare), Arc::downgrade(worker));
        let name = format!("{:.9}/calls", worker.name);
        let thread = std::thread::Builder::new().name(name).spawn({
            let socket = Arc::clone(&socket);
            move || serve_spare(&socket, &weak)
        })?;
        Ok(Self {
            socket,
            thread: Some(thread),
        })
    }
}

impl Drop for SpareThread {
    /// Waits until the thread has ended. A thread that runs while the process exits could use
    /// something that a library has already destroyed. The thread cannot wait for itself, so this
    /// returns at once if the thread dropped the last reference to its worker.
    fn drop(&mut self) {
        self.socket.shut_down();
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != own
            && thread.join().is_err()
        {
            log::error!("the thread that served a worker process panicked");
        }
    }
}

fn serve_spare(spare: &Socket, weak: &Weak<Worker>) {
    let mut room = buffer();
    loop {
        let received = spare.receive(&mut room);
        let Some(worker) = weak.upgrade() else { return };
        let served = match received {
            Ok(mut call) => worker
                .answer(&mut call, Caller::Spare)
                .and_then(|(answer, file)| send_answer(spare, &answer, file.as_deref())),
            Err(SocketError::Timeout) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            worker.give_up(&error);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_that_serves_a_worker_ends_with_what_holds_it() {
        let (socket, _end) = Socket::pair().unwrap();
        let socket = Arc::new(socket);
        let thread = std::thread::spawn({
            let socket = Arc::clone(&socket);
            move || serve_spare(&socket, &Weak::new())
        });
        drop(SpareThread {
            socket: Arc::clone(&socket),
            thread: Some(thread),
        });
        // The thread has dropped its reference, though the other end is open.
        assert_eq!(Arc::strong_count(&socket), 1);
    }
}
