//! The device: opening it, what it is, and what can be made from it.

use causeway_protocol::message::{self, FaultReport, Operation, Status, operation};
use causeway_protocol::registers::{self, CONTROL_IN_WINDOW, Register};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};

use crate::control::{Batch, Control};
use crate::error::{OpenError, QueryError, Refusal};
use crate::transport::Transport;
use crate::window::Window;

/// What the device is and what the session may use, in bytes and counts.
pub type Attributes = message::Attributes;

/// An unguessable name of an export, to be handed to another session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExportToken(pub [u8; message::TOKEN_BYTES]);

impl core::fmt::Debug for ExportToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The token is a capability: logs get enough to tell tokens apart, and no more.
        write!(f, "ExportToken({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// An open device. May be used from several CPUs at once.
pub struct Device<'t> {
    control: Control<'t>,
    aperture: Window,
    minor: u16,
    features: u64,
    session: u64,
}

impl<'t> Device<'t> {
    /// Opens the device behind `transport`, whose session must be fresh (see [`Self::reset`]).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(transport: &'t dyn Transport) -> Result<Self, OpenError> {
        let aperture = identify(transport)?;
        let control = Control::new(transport);
        control.announce();
        let mut batch = control.batch();
        let hello = batch.push::<operation::Hello>(&message::Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            reserved: 0,
        });
        let replies = batch.execute();
        let reply = replies.require(hello).map_err(OpenError::Refused)?;
        // The area might not be RAM at all; then nothing was executed. From here on it is known to
        // be good.
        let taken = transport.read_register(Register::BatchStatus);
        if let Some(refusal) = batch_refusal(taken) {
            return Err(OpenError::Refused(refusal));
        }
        drop(replies);
        Ok(Self {
            control,
            aperture,
            minor: reply.minor,
            features: reply.features,
            session: reply.session,
        })
    }

    /// Ends whatever session the device behind `transport` has, with all that it owns; behind a
    /// transport of one client among several, what that client owns.
    pub fn reset(transport: &dyn Transport) {
        transport.write_register(Register::Reset, registers::RESET_KEY);
    }

    /// Minor version that both sides speak.
    #[must_use]
    pub const fn minor_version(&self) -> u16 {
        self.minor
    }

    /// Bit set of [`registers::features`].
    #[must_use]
    pub const fn features(&self) -> u64 {
        self.features
    }

    /// Number of this session in its mediator.
    #[must_use]
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// The aperture as the transport has mapped it.
    #[must_use]
    pub const fn aperture(&self) -> Window {
        self.aperture
    }

    /// How the device is reached.
    #[must_use]
    pub fn transport(&self) -> &'t dyn Transport {
        self.control.transport()
    }

    /// Begins a batch of control messages; waits until no other CPU has one.
    pub fn batch(&self) -> Batch<'_> {
        self.control.batch()
    }

    /// One message in a batch of its own.
    ///
    /// # Errors
    /// What the device said.
    pub fn call<O: Operation>(&self, request: &O::Request) -> Result<O::Reply, Refusal> {
        let mut batch = self.batch();
        let ticket = batch.push::<O>(request);
        batch.execute().require(ticket)
    }

    /// What the device is and what the session may use.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn attributes(&self) -> Result<Attributes, QueryError> {
        self.call::<operation::QueryAttributes>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// What ended the session, if it has ended: status and text.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn fault(&self) -> Result<FaultReport, QueryError> {
        self.call::<operation::QueryFault>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// Whether the session was lost to a fault. An exit.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.transport().read_register(Register::Status) & registers::status::LOST != 0
    }
}

/// Checks that the device is one and can be talked to; gives its aperture.
fn identify(transport: &dyn Transport) -> Result<Window, OpenError> {
    let magic = transport.read_register(Register::Magic);
    if magic != registers::MAGIC {
        return Err(OpenError::NotCauseway { magic });
    }
    let host = transport.read_register(Register::Version);
    if host >> 16 != u32::from(VERSION_MAJOR) {
        return Err(OpenError::Version { host });
    }
    let area = transport.control_area();
    let bytes = area.window.bytes();
    let aligned = area.address.is_multiple_of(8) || area.address == CONTROL_IN_WINDOW;
    if !aligned || bytes < 4096 || !bytes.is_multiple_of(8) {
        return Err(OpenError::ControlArea {
            address: area.address,
            bytes,
        });
    }
    let device_bytes = u64::from(transport.read_register(Register::ApertureLow))
        | u64::from(transport.read_register(Register::ApertureHigh)) << 32;
    let aperture = transport.aperture();
    if aperture.bytes() as u64 != device_bytes {
        return Err(OpenError::Aperture {
            device_bytes,
            mapped_bytes: aperture.bytes(),
        });
    }
    Ok(aperture)
}

fn batch_refusal(status: u32) -> Option<Refusal> {
    match Status::from_wire(status) {
        Some(Status::Ok) => None,
        Some(status) => Some(Refusal {
            opcode: None,
            status,
            detail: 0,
        }),
        None => Some(Refusal {
            opcode: None,
            status: Status::BackEnd,
            detail: status,
        }),
    }
}
