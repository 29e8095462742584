//! The device over a Unix socket (see [`causeway_protocol::socket`]).

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use causeway_protocol::Access;
use causeway_protocol::registers::{CONTROL_BYTES_MAX, Register};
use causeway_protocol::socket::{Event, EventKind, Request, RequestKind};
use causeway_shim::{ControlArea, Status, Transport, Window};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::area::{Area, refuse};
use crate::connect::{self, ConnectError};
use crate::fork::{Forked, Owner};
use crate::reserved::ReservedRange;

/// Largest datagram: an event and a batch.
const DATAGRAM_BYTES_MAX: usize = size_of::<Event>() + CONTROL_BYTES_MAX as usize;

/// Why an exchange with the server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Forked(#[from] Forked),
    #[error("the connection to the Causeway server has ended: open the device again to go on")]
    Ended,
    #[error("the connection ends because the Causeway server sent {0}")]
    Malformed(&'static str),
    #[error("communication with the Causeway server failed: {0}")]
    Failed(#[from] Errno),
}

/// The transport of a process that runs without a VM: a connection to `causeway serve`. Each
/// connection has a session of its own, which ends when the connection is closed.
#[derive(Debug)]
pub struct SocketTransport {
    path: PathBuf,
    owner: Owner,
    aperture: ReservedRange,
    control: Area,
    /// Taken for an exchange, from request to reply.
    line: Mutex<Line>,
    doorbells: Mutex<BTreeMap<u32, OwnedFd>>,
}

#[derive(Debug)]
struct Line {
    buffer: Vec<u8>,
    /// Set for good when the server is gone.
    broken: bool,
}

impl SocketTransport {
    /// Connects to the server that listens at the socket `path`.
    ///
    /// # Errors
    /// [`ConnectError::Connect`] if no server listens there, [`ConnectError::Foreign`] if it runs
    /// as a user whom this process has no reason to trust, [`ConnectError::Ended`] if the server
    /// ends before it answers, [`ConnectError::Stranger`] if it is another program or another
    /// version of `causeway serve`, [`ConnectError::Refused`] if it does not serve this process,
    /// [`ConnectError::Aperture`] if the process cannot reserve addresses for the aperture.
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        let (socket, greeting) = connect::open(path)?;
        let bytes = greeting.aperture_bytes;
        let no_addresses = |source: Errno| ConnectError::Aperture {
            bytes,
            source: source.into(),
        };
        Ok(Self {
            path: path.to_owned(),
            owner: Owner::new(socket),
            aperture: ReservedRange::reserve(bytes).map_err(no_addresses)?,
            control: Area::new(CONTROL_BYTES_MAX as usize),
            line: Mutex::new(Line {
                buffer: vec![0; DATAGRAM_BYTES_MAX],
                broken: false,
            }),
            doorbells: Mutex::default(),
        })
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request, applies the events before the reply, and returns the reply's argument. The
    /// replies replace the batch.
    fn exchange(&self, request: Request, batch: &mut [u8]) -> Result<u32, ExchangeError> {
        let socket = self.owner.descriptor();
        let socket = socket.ok_or_else(|| Forked(std::process::id()))?;
        let mut line = self.line.lock();
        if line.broken {
            return Err(ExchangeError::Ended);
        }
        let outcome = self.converse(socket.as_fd(), &mut line.buffer, request, batch);
        line.broken = outcome.is_err();
        outcome
    }

    fn converse(
        &self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        request: Request,
        batch: &mut [u8],
    ) -> Result<u32, ExchangeError> {
        let slices = [IoSlice::new(request.as_bytes()), IoSlice::new(batch)];
        let mut none = SendAncillaryBuffer::default();
        sendmsg(socket, &slices, &mut none, SendFlags::NOSIGNAL)?;
        loop {
            let (bytes, descriptor) = receive(socket, buffer)?;
            let (event, rest) = Event::read_from_prefix(&buffer[..bytes])
                .map_err(|_| ExchangeError::Malformed("an incomplete message"))?;
            match EventKind::from_wire(event.kind) {
                Some(EventKind::Reply) if rest.len() == batch.len() => {
                    batch.copy_from_slice(rest);
                    return Ok(event.argument);
                }
                Some(EventKind::Reply) => {
                    return Err(ExchangeError::Malformed("a reply of another length"));
                }
                Some(kind) => self.apply(kind, &event, descriptor)?,
                None => return Err(ExchangeError::Malformed("an event of an unknown kind")),
            }
        }
    }

    /// Applies an event of the server to this process.
    fn apply(
        &self,
        kind: EventKind,
        event: &Event,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ExchangeError> {
        let Event { offset, bytes, .. } = *event;
        let access = Access::from_wire(event.argument);
        match (kind, descriptor, access) {
            (EventKind::Place, Some(file), Some(access)) => {
                let file = file.as_fd();
                self.aperture
                    .place(offset, bytes, file, event.from, access)?;
            }
            (EventKind::SetAccess, None, Some(access)) => {
                self.aperture.set_access(offset, bytes, access)?;
            }
            (EventKind::Remove, None, _) => self.aperture.remove(offset, bytes)?,
            (EventKind::Bind, Some(event_file), _) => {
                self.doorbells.lock().insert(event.argument, event_file);
            }
            (EventKind::Unbind, None, _) => drop(self.doorbells.lock().remove(&event.argument)),
            _ => return Err(ExchangeError::Malformed("an event with missing parts")),
        }
        Ok(())
    }

    /// Executes the batch in the control area.
    fn execute(&self, bytes: u32) {
        let request = request(RequestKind::Batch, 0, bytes);
        let area = self.control.window();
        let mut batch = vec![0; (bytes as usize).min(area.bytes())];
        // As long as the area at most.
        let _ = area.read(0, &mut batch);
        match self.exchange(request, &mut batch) {
            Ok(status) if status == Status::Ok as u32 => {
                let _ = area.write(0, &batch);
            }
            Ok(status) => refuse(&area, status),
            Err(error) => {
                log::error!(
                    "cannot execute a batch through the Causeway server, so its requests fail: \
                     {error}"
                );
                refuse(&area, Status::DeviceLost as u32);
            }
        }
    }
}

impl Transport for SocketTransport {
    fn read_register(&self, register: Register) -> u32 {
        let request = request(RequestKind::Load, register as u32, 0);
        self.exchange(request, &mut []).unwrap_or_else(|error| {
            log::error!(
                "cannot read device register {name} through the Causeway server, so 0xffffffff \
                 is returned: {error}",
                name = register.name()
            );
            // What a function that has gone away reads as.
            u32::MAX
        })
    }

    fn write_register(&self, register: Register, value: u32) {
        if register == Register::ControlDoorbell {
            return self.execute(value);
        }
        let request = request(RequestKind::Store, register as u32, value);
        if let Err(error) = self.exchange(request, &mut []) {
            log::error!(
                "cannot write device register {name} through the Causeway server, so the write may \
                 be lost: {error}",
                name = register.name()
            );
        }
    }

    fn control_area(&self) -> ControlArea {
        ControlArea {
            window: self.control.window(),
            // Batches go with their requests; the server looks nowhere.
            address: 0,
        }
    }

    fn aperture(&self) -> Window {
        self.aperture.window()
    }

    fn ring_doorbell(&self, index: u32) {
        if let Some(event) = self.doorbells.lock().get(&index) {
            // Refused only when the counter is full, and then the consumer is awake soon enough.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }
}

const fn request(kind: RequestKind, register: u32, value: u32) -> Request {
    Request {
        kind: kind as u32,
        register,
        value,
        reserved: 0,
    }
}

/// Receives a datagram into `buffer`. Returns its length, and its descriptor, if it has one.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), ExchangeError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let received = loop {
        match recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
        _ => Vec::new(),
    });
    let descriptor = descriptors.next();
    match received.bytes {
        0 => Err(ExchangeError::Ended),
        bytes => Ok((bytes, descriptor)),
    }
}
