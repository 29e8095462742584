//! A process that is connected: its requests, and the registers before its session.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_mediator::{Client, GuestSession};
use causeway_protocol::message::Status;
use causeway_protocol::registers::{
    CONTROL_BYTES_MAX, MAGIC, RESET_KEY, Register, doorbells, features,
};
use causeway_protocol::socket::{self, Event, EventKind, Greeting, Request, RequestKind};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use super::host::ClientHost;

/// Largest request with its batch, and one byte by which a longer one shows.
const REQUEST_BYTES_MAX: usize = size_of::<Request>() + CONTROL_BYTES_MAX as usize + 1;

/// Why a connection ended, if not by the process.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// What came is not of this protocol.
    #[error("the process sent {0}")]
    Malformed(&'static str),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Failed(#[from] Errno),
}

/// One connection.
pub struct Connection {
    socket: Arc<OwnedFd>,
    host: Arc<ClientHost>,
    session: Arc<dyn GuestSession>,
    batch_status: u32,
}

impl Connection {
    /// A process at the other end of `socket`, with a session of its own.
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

    /// Answers requests until the process is gone.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub fn serve(&mut self) -> Result<(), ConnectionError> {
        let greeting = Greeting {
            magic: socket::MAGIC,
            version: socket::VERSION,
            aperture_bytes: self.host.aperture_bytes(),
        };
        self.send(greeting.as_bytes(), &[], None)?;
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

    /// Does what a datagram asks for, and replies.
    fn answer(&mut self, datagram: &mut [u8]) -> Result<(), ConnectionError> {
        let (head, batch) = datagram
            .split_at_mut_checked(size_of::<Request>())
            .ok_or(ConnectionError::Malformed("an incomplete request"))?;
        let request = Request::read_from_bytes(head)
            .map_err(|_| ConnectionError::Malformed("an incomplete request"))?;
        let kind = RequestKind::from_wire(request.kind)
            .ok_or(ConnectionError::Malformed("a request of an unknown kind"))?;
        let follows = if kind == RequestKind::Batch {
            request.value as usize
        } else {
            0
        };
        if batch.len() != follows {
            return Err(ConnectionError::Malformed("a request of the wrong length"));
        }
        let register = Register::at(request.register.into());
        let argument = match kind {
            // As a function answers what it has not got.
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
        let features = self.session.attributes().features & !features::DEVICE_VISIBLE;
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
            // Nothing that a process of the host touches is seen here; what else there is concerns VMs.
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
        self.session.execute(Client::FIRST, batch)
    }

    /// Tells what has happened since the last reply, then replies.
    fn reply(&self, argument: u32, batch: &[u8]) -> Result<(), ConnectionError> {
        for (event, descriptor) in self.host.take_events() {
            self.send(event.as_bytes(), &[], descriptor.as_ref())?;
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
            // There is room for one.
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let slices = [IoSlice::new(head), IoSlice::new(rest)];
        loop {
            match sendmsg(&*self.socket, &slices, &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Receives a datagram: its length, zero once the process is gone. Descriptors that it comes with are closed.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, ConnectionError> {
        let mut none = RecvAncillaryBuffer::default();
        let mut slices = [IoSliceMut::new(buffer)];
        let received = loop {
            match recvmsg(
                &*self.socket,
                &mut slices,
                &mut none,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(ConnectionError::Malformed("a request that is too long"));
        }
        Ok(received.bytes)
    }
}
