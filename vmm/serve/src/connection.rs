//! The connection of a client process: its requests, and the registers of its session.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_mediator::{Client, GuestSession, SESSION_FEATURES};
use causeway_protocol::message::{Header, HelloReply, Opcode, Status};
use causeway_protocol::registers::{
    CONTROL_BYTES_MAX, MAGIC, RESET_KEY, Register, doorbells, features,
};
use causeway_protocol::socket::{
    self, Event, EventKind, Greeting, REASON_BYTES_MAX, Request, RequestKind,
};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use super::host::ClientHost;

/// Features of sessions that a process does not have: there is no guest RAM, memory of a GPU cannot
/// be mapped by its descriptor, each process is the only client of its session, and nothing can be
/// interrupted.
const HIDDEN: u64 = features::GUEST_RAM
    | features::DEVICE_VISIBLE
    | features::CLIENTS
    | features::CONTROL_WINDOW
    | features::NOTIFY;

/// Bytes of the largest request with its batch, and one more to detect a longer one.
const REQUEST_BYTES_MAX: usize = size_of::<Request>() + CONTROL_BYTES_MAX as usize + 1;

/// Why the server ends the connection of a client process.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The process sent a datagram that does not follow the protocol.
    #[error("the client process broke the protocol: it sent {0}")]
    Malformed(&'static str),
    /// A system call on the socket failed.
    #[error("communication with the client process failed: {0}")]
    Failed(#[from] Errno),
}

/// The connection of one client process. It executes the process's requests in the process's
/// session.
pub struct Connection {
    socket: Arc<OwnedFd>,
    host: Arc<ClientHost>,
    session: Arc<dyn GuestSession>,
    batch_status: u32,
}

/// Tells the client process at `socket` why it is not served. Does not wait for a process that does
/// not read; the caller closes the connection.
pub fn refuse(socket: &OwnedFd, reason: &str) {
    let greeting = Greeting {
        magic: socket::MAGIC,
        version: socket::VERSION,
        aperture_bytes: 0,
    };
    let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    let slices = [
        IoSlice::new(greeting.as_bytes()),
        IoSlice::new(reason.as_bytes()),
    ];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut none = SendAncillaryBuffer::default();
    if let Err(e) = retry_on_intr(|| sendmsg(socket, &slices, &mut none, flags)) {
        log::debug!("cannot tell a client process why it is refused: {e}");
    }
}

/// Refuses the process at `socket`, which the server could not serve, and logs why.
pub fn turn_away(socket: &OwnedFd, why: &str) {
    log::error!("cannot serve a client process: {why}");
    refuse(socket, why);
}

impl Connection {
    /// Returns a connection over `socket` that executes requests in `session`. `host` contains the
    /// client process's aperture and doorbells.
    pub fn new(
        socket: Arc<OwnedFd>,
        host: Arc<ClientHost>,
        session: Arc<dyn GuestSession>,
    ) -> Self {
        Self {
            socket,
            host,
            session,
            batch_status: Status::Ok as u32,
        }
    }

    /// Sends a greeting with the protocol version and the size of the aperture, then answers
    /// requests until the process closes the connection.
    ///
    /// # Errors
    /// [`ConnectionError::Malformed`] if the process does not follow the protocol, `Failed` if the
    /// socket fails.
    pub fn serve(&mut self) -> Result<(), ConnectionError> {
        let greeting = Greeting {
            magic: socket::MAGIC,
            version: socket::VERSION,
            aperture_bytes: self.host.aperture_bytes(),
        };
        match self.send(greeting.as_bytes(), &[], None) {
            Err(ConnectionError::Failed(Errno::PIPE | Errno::CONNRESET)) => return Ok(()),
            sent => sent?,
        }
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        loop {
            let bytes = match self.receive(&mut buffer) {
                Ok(0) | Err(ConnectionError::Failed(Errno::CONNRESET)) => return Ok(()),
                received => received?,
            };
            match self.answer(&mut buffer[..bytes]) {
                Err(ConnectionError::Failed(Errno::PIPE | Errno::CONNRESET)) => return Ok(()),
                answered => answered?,
            }
        }
    }

    /// Executes the request in a datagram and replies.
    fn answer(&mut self, datagram: &mut [u8]) -> Result<(), ConnectionError> {
        let (request, _) = Request::read_from_prefix(datagram)
            .map_err(|_| ConnectionError::Malformed("an incomplete request"))?;
        let batch = &mut datagram[size_of::<Request>()..];
        let kind = RequestKind::from_wire(request.kind)
            .ok_or(ConnectionError::Malformed("a request of an unknown kind"))?;
        let follows = match kind {
            RequestKind::Batch => request.value as usize,
            RequestKind::Load | RequestKind::Store => 0,
        };
        if batch.len() != follows {
            return Err(ConnectionError::Malformed("a request of the wrong length"));
        }
        let register = Register::at(request.register.into());
        let argument = match kind {
            // Like a PCI function, which answers reads of absent registers.
            RequestKind::Load => register.map_or(u32::MAX, |register| self.load(register)),
            RequestKind::Store => {
                self.store(register, request.value);
                0
            }
            RequestKind::Batch => {
                self.batch_status = self.execute(batch) as u32;
                self.batch_status
            }
        };
        self.reply(argument, batch)
    }

    fn load(&self, register: Register) -> u32 {
        let features = (self.session.attributes().features | SESSION_FEATURES) & !HIDDEN;
        let aperture = self.host.aperture_bytes();
        match register {
            Register::Magic => MAGIC,
            Register::Version => u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR),
            Register::FeaturesLow => features as u32,
            Register::FeaturesHigh => (features >> 32) as u32,
            Register::Status => self.session.status_bits(),
            Register::BatchStatus => self.batch_status,
            Register::ApertureLow => aperture as u32,
            Register::ApertureHigh => (aperture >> 32) as u32,
            Register::DoorbellCount => doorbells::COUNT,
            // The server sees no memory accesses of a process; the other kinds concern VMs only.
            _ => 0,
        }
    }

    fn store(&self, register: Option<Register>, value: u32) {
        if register == Some(Register::Reset) && value == RESET_KEY {
            self.session.reset();
        }
    }

    fn execute(&self, batch: &mut [u8]) -> Status {
        if batch.is_empty() || !batch.len().is_multiple_of(8) {
            return Status::BadLength;
        }
        let status = self.session.execute(Client::FIRST, batch);
        // Also in a batch that failed: messages before the one at fault have replies.
        hide_features(batch);
        status
    }

    /// Sends the events since the last reply, then the reply.
    fn reply(&self, argument: u32, batch: &[u8]) -> Result<(), ConnectionError> {
        for (event, descriptor) in self.host.take_events() {
            self.send(event.as_bytes(), &[], descriptor.as_deref())?;
        }
        let event = Event {
            kind: EventKind::Reply as u32,
            argument,
            ..Event::default()
        };
        self.send(event.as_bytes(), batch, None)
    }

    fn send(
        &self,
        head: &[u8],
        rest: &[u8],
        descriptor: Option<&OwnedFd>,
    ) -> Result<(), ConnectionError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor.as_fd()]);
        if let Some(descriptors) = &descriptors {
            // The buffer has room for one descriptor.
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let slices = [IoSlice::new(head), IoSlice::new(rest)];
        let flags = SendFlags::NOSIGNAL;
        retry_on_intr(|| sendmsg(&*self.socket, &slices, &mut ancillary, flags))?;
        Ok(())
    }

    /// Receives a datagram and returns its length, or zero after the process has closed the
    /// connection. Descriptors in the datagram are closed.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, ConnectionError> {
        let mut none = RecvAncillaryBuffer::default();
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = retry_on_intr(|| recvmsg(&*self.socket, &mut slices, &mut none, flags))?;
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(ConnectionError::Malformed("a request that is too long"));
        }
        Ok(received.bytes)
    }
}

/// Removes [`HIDDEN`] from the replies to `hello` in an executed batch, so that they agree with the
/// feature registers: a session does not know how its guest reaches it.
fn hide_features(batch: &mut [u8]) {
    let mut rest = batch;
    while let Ok((header, _)) = Header::read_from_prefix(rest) {
        let framed = rest.split_at_mut_checked(header.length as usize);
        let Some((message, behind)) = framed.filter(|(m, _)| m.len() >= size_of::<Header>()) else {
            return;
        };
        let body = &mut message[size_of::<Header>()..];
        let is_hello = header.opcode == Opcode::Hello as u16 && header.status == Status::Ok as u32;
        if is_hello && let Ok((mut reply, _)) = HelloReply::read_from_prefix(body) {
            reply.features &= !HIDDEN;
            body[..size_of::<HelloReply>()].copy_from_slice(reply.as_bytes());
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a message of this opcode and status with a body of all ones.
    fn message(opcode: Opcode, status: Status) -> Vec<u8> {
        let header = Header {
            opcode: opcode as u16,
            length: (size_of::<Header>() + 32) as u32,
            status: status as u32,
            ..Header::default()
        };
        [header.as_bytes(), &[0xff; 32]].concat()
    }

    #[test]
    fn only_successful_replies_to_hello_lose_features_and_any_batch_is_survived() {
        let others = [
            message(Opcode::QueryAttributes, Status::Ok),
            message(Opcode::Hello, Status::BadVersion),
        ];
        let mut batch = others.concat();
        let before = batch.clone();
        hide_features(&mut batch);
        assert_eq!(batch, before);
        let behind = batch.len() + size_of::<Header>();
        batch.extend(message(Opcode::Hello, Status::Ok));
        hide_features(&mut batch);
        let (reply, _) = HelloReply::read_from_prefix(&batch[behind..]).unwrap();
        assert_eq!(reply.features, !HIDDEN);
        assert_eq!(batch[..before.len()], before);
        for length in 0..batch.len() {
            hide_features(&mut batch[..length]);
        }
        batch.fill(0);
        hide_features(&mut batch);
        batch.fill(0xff);
        hide_features(&mut batch);
    }
}
