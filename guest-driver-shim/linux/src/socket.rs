//! The device over a Unix socket (see [`causeway_protocol::socket`]).

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use causeway_protocol::Access;
use causeway_protocol::registers::{CONTROL_BYTES_MAX, Register};
use causeway_protocol::socket::{
    Event, EventKind, Greeting, MAGIC, REASON_BYTES_MAX, Request, RequestKind, VERSION,
};
use causeway_shim::{ControlArea, Status, Transport, Window};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::APERTURE_BYTES_MAX;
use crate::area::{Area, refuse};
use crate::fork::{Forked, Owner};
use crate::reserved::ReservedRange;

/// Environment variable that contains the path of the socket of `causeway serve`.
pub const SOCKET_VARIABLE: &str = "CAUSEWAY_SOCKET";

/// Largest datagram: an event and a batch.
const DATAGRAM_BYTES_MAX: usize = size_of::<Event>() + CONTROL_BYTES_MAX as usize;

/// Why a process cannot connect to `causeway serve`.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server listens at the socket.
    #[error(
        "cannot connect to {path}: is `causeway serve --socket {path}` running?",
        path = .path.display()
    )]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server is another program, or another version of `causeway serve`.
    #[error(
        "the server at {path} is not a `causeway serve` that this program's driver supports: \
         {what}; run `causeway serve` of the same version as the driver",
        path = .path.display()
    )]
    Stranger {
        /// Path of the socket.
        path: PathBuf,
        /// What is wrong with the server's greeting.
        what: &'static str,
    },
    /// The server does not serve this process.
    #[error(
        "the Causeway server at {path} refuses this process: {reason}",
        path = .path.display()
    )]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// The server's reason.
        reason: String,
    },
    /// The process cannot reserve addresses for the aperture.
    #[error(
        "cannot reserve {bytes} bytes of this process's virtual addresses for the aperture (if the \
         process has a limit, raise it with `ulimit -v`)"
    )]
    Aperture {
        /// Size of the aperture in bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Why an exchange with the server failed.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
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
    /// [`ConnectError::Connect`] if no server listens there, [`ConnectError::Stranger`] if the
    /// server is another program or another version of `causeway serve`, [`ConnectError::Refused`]
    /// if it does not serve this process, [`ConnectError::Aperture`] if the process cannot reserve
    /// addresses for the aperture.
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        let failed = |source: Errno| ConnectError::Connect {
            path: path.to_owned(),
            source: source.into(),
        };
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(failed)?;
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        rustix::net::connect(&socket, &address).map_err(failed)?;
        let greeting = greeting(socket.as_fd()).map_err(|denial| denial.error(path))?;
        let bytes = greeting.aperture_bytes;
        let no_addresses = |source: Errno| ConnectError::Aperture {
            bytes,
            source: source.into(),
        };
        Ok(Self {
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

/// Why a server's greeting does not begin a session.
enum Denial {
    /// It is no greeting that this driver supports.
    Stranger(&'static str),
    /// It is a refusal, with this reason.
    Refused(String),
}

impl Denial {
    fn error(self, path: &Path) -> ConnectError {
        let path = path.to_owned();
        match self {
            Self::Stranger(what) => ConnectError::Stranger { path, what },
            Self::Refused(reason) => ConnectError::Refused { path, reason },
        }
    }
}

/// Receives the greeting of the server.
fn greeting(socket: BorrowedFd<'_>) -> Result<Greeting, Denial> {
    let mut buffer = [0; size_of::<Greeting>() + REASON_BYTES_MAX + 1];
    let received = receive(socket, &mut buffer);
    let (bytes, _) = received.map_err(|_| Denial::Stranger("it sent nothing"))?;
    check_greeting(&buffer[..bytes])
}

fn check_greeting(datagram: &[u8]) -> Result<Greeting, Denial> {
    let stranger = |what| Err(Denial::Stranger(what));
    let Ok((greeting, reason)) = Greeting::read_from_prefix(datagram) else {
        return stranger("its first message is not a greeting");
    };
    if greeting.magic != MAGIC {
        return stranger("its first message is not a greeting");
    }
    if greeting.version != VERSION {
        return stranger("it has another version");
    }
    let bytes = greeting.aperture_bytes;
    if bytes == 0 && !reason.is_empty() && reason.len() <= REASON_BYTES_MAX {
        let reason = String::from_utf8_lossy(reason);
        let reason = reason.chars().filter(|character| !character.is_control());
        return Err(Denial::Refused(reason.collect()));
    }
    if !reason.is_empty() {
        return stranger("its first message is not a greeting");
    }
    if bytes == 0 || bytes > APERTURE_BYTES_MAX || !bytes.is_multiple_of(4096) {
        return stranger("its aperture has an invalid size");
    }
    Ok(greeting)
}

/// Receives a datagram into `buffer`. Returns its length, and its descriptor, if it has one.
fn receive(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(aperture_bytes: u64, behind: &[u8]) -> Option<String> {
        let greeting = Greeting {
            magic: MAGIC,
            version: VERSION,
            aperture_bytes,
        };
        let datagram = [greeting.as_bytes(), behind].concat();
        let denial = check_greeting(&datagram).err()?;
        Some(denial.error(Path::new("/gpu")).to_string())
    }

    #[test]
    fn a_refusal_is_told_from_a_greeting_and_from_noise() {
        assert_eq!(denied(1 << 30, b""), None);
        assert_eq!(
            denied(0, b"all 8 places\x1b are taken").unwrap(),
            "the Causeway server at /gpu refuses this process: all 8 places are taken"
        );
        for (bytes, behind) in [(0, &b""[..]), (1 << 30, b"x"), (0, &[b'x'; 513])] {
            let message = denied(bytes, behind).unwrap();
            assert!(message.contains("is not a `causeway serve`"), "{message}");
        }
        assert!(check_greeting(b"").is_err());
    }
}
