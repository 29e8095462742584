//! The device: opening it, what it is, and what can be made from it.

use causeway_protocol::message::{self, FaultReport, HelloReply, Operation, Status, operation};
use causeway_protocol::registers::{self, CONTROL_IN_WINDOW, Register, features};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};

use crate::control::{Batch, Control};
use crate::error::{OpenError, QueryError, Refusal};
use crate::transport::Transport;
use crate::window::Window;

/// The CUDA attributes of a kernel, and whether it prints.
pub type KernelFacts = message::KernelFacts;

/// What identifies the device, and its CUDA device attributes.
pub type DeviceFacts = message::DeviceFacts;

/// How long the session has had work under way on the GPU, and when that was read.
pub type BusyTime = message::BusyReply;

/// The number of the GPU of a session, how many the run has, and how they reach its memory.
pub type GpuNumbers = message::GpusReply;

/// Minor version of the protocol from which a fault report has a result of the CUDA driver API.
const MINOR_OF_CUDA_RESULTS: u16 = 3;

/// Name and limits of the device and the session, as the device reports them.
pub type Attributes = message::Attributes;

/// The secret token of an export. Another session that has the token can import the exported
/// allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExportToken(pub [u8; message::TOKEN_BYTES]);

impl core::fmt::Debug for ExportToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The token is a capability: logs get enough to tell tokens apart, and no more.
        write!(f, "ExportToken({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// A handle by which all machines of an NVLink fabric can import memory (`CUmemFabricHandle`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FabricHandle(pub [u8; message::FABRIC_HANDLE_BYTES]);

impl core::fmt::Debug for FabricHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Who knows it can use the memory.
        f.write_str("FabricHandle(…)")
    }
}

/// An open device with a session. Several CPUs or threads may use it at once.
#[derive(Debug)]
pub struct Device<'t> {
    control: Control<'t>,
    aperture: Window,
    hello: HelloReply,
}

impl<'t> Device<'t> {
    /// Opens the device that `transport` reaches, and begins a session. If the device was opened
    /// before, call [`Self::reset`] first.
    ///
    /// # Errors
    /// [`OpenError::NotCauseway`] if it is not a Causeway device, [`OpenError::Version`] if the
    /// host speaks another major version of the protocol, [`OpenError::ControlArea`] or
    /// [`OpenError::Aperture`] if the transport's control area or aperture is unusable,
    /// [`OpenError::Refused`] if the device refuses the first message, `hello`, [`OpenError::Gone`]
    /// if the device stops to answer meanwhile.
    pub fn open(transport: &'t dyn Transport) -> Result<Self, OpenError> {
        Self::try_open(transport).map_err(|error| {
            // A device that is gone reads as all ones, so that any of its registers can look wrong.
            match transport.read_register(Register::Magic) {
                u32::MAX => OpenError::Gone,
                _ => error,
            }
        })
    }

    fn try_open(transport: &'t dyn Transport) -> Result<Self, OpenError> {
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
        let hello = replies.require(hello).map_err(OpenError::Refused)?;
        // The area might not be RAM at all; then nothing was executed. From here on it is known to
        // be good.
        let taken = transport.read_register(Register::BatchStatus);
        if taken != Status::Ok as u32 {
            return Err(OpenError::Refused(Refusal::from_wire(None, taken, 0)));
        }
        drop(replies);
        Ok(Self {
            control,
            aperture,
            hello,
        })
    }

    /// Ends the session of the device that `transport` reaches, and frees everything that the
    /// session owns. If the transport belongs to one of several clients, the session continues, and
    /// only what this client owns is freed. One exit.
    pub fn reset(transport: &dyn Transport) {
        transport.write_register(Register::Reset, registers::RESET_KEY);
    }

    /// Returns the minor version of the protocol in use: the smaller of the guest's and the host's.
    #[must_use]
    pub const fn minor_version(&self) -> u16 {
        self.hello.minor
    }

    /// Returns the features of the session, a bit set of [`registers::features`].
    #[must_use]
    pub const fn features(&self) -> u64 {
        self.hello.features
    }

    /// Returns the most urgent priority that a command buffer of the session can have: a negative
    /// number; 0 if the device has no priorities, or the host speaks a version of the protocol
    /// before 1.4.
    #[must_use]
    pub const fn greatest_priority(&self) -> i32 {
        match self.features() & features::PRIORITIES {
            0 => 0,
            _ => self.hello.greatest_priority,
        }
    }

    /// Returns the number that identifies this session in the mediator's logs.
    #[must_use]
    pub const fn session(&self) -> u64 {
        self.hello.session
    }

    /// Returns a window over the aperture, as the transport has mapped it.
    #[must_use]
    pub const fn aperture(&self) -> Window {
        self.aperture
    }

    /// Returns the transport with which the device was opened.
    #[must_use]
    pub fn transport(&self) -> &'t dyn Transport {
        self.control.transport()
    }

    /// Begins a batch of control messages. Waits while another CPU or thread has a [`Batch`] or
    /// [`Replies`](crate::Replies) that it has not dropped yet.
    pub fn batch(&self) -> Batch<'_> {
        self.control.batch()
    }

    /// Sends the message `request` as a batch of its own, and returns the device's reply. One exit.
    ///
    /// # Errors
    /// The [`Refusal`] of the message, if the device does not execute it.
    pub fn call<O: Operation>(&self, request: &O::Request) -> Result<O::Reply, Refusal> {
        let mut batch = self.batch();
        let ticket = batch.push::<O>(request);
        batch.execute().require(ticket)
    }

    /// Asks the device for its name and for the limits of the session. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost.
    pub fn attributes(&self) -> Result<Attributes, QueryError> {
        self.call::<operation::QueryAttributes>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// Asks the device what identifies it, and for its CUDA device attributes. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost, or if the host speaks a version of the protocol
    /// before 1.3 (`BadOpcode`).
    pub fn query_device(&self) -> Result<DeviceFacts, QueryError> {
        self.call::<operation::QueryDevice>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// Asks the device how long the session has had work under way on the GPU. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost, or if the host is older than this message
    /// (`BadOpcode`).
    pub fn query_busy(&self) -> Result<BusyTime, QueryError> {
        self.call::<operation::QueryBusy>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// Asks the device for the number of the session's GPU, for the GPUs that can be its peers,
    /// with what is known of their links, and for those that reach its memory by copies only. One
    /// exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost, or if the host is older than this message
    /// (`BadOpcode`).
    pub fn query_gpus(&self) -> Result<GpuNumbers, QueryError> {
        self.call::<operation::QueryGpus>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// Asks the device for the CUDA attributes of the kernel with handle `kernel`. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if there is no such kernel, the session is lost, or the host speaks a version
    /// of the protocol before 1.3 (`BadOpcode`).
    pub fn query_kernel(&self, kernel: u32) -> Result<KernelFacts, QueryError> {
        let request = message::HandleRequest {
            handle: kernel,
            reserved: 0,
        };
        self.call::<operation::QueryKernel>(&request)
            .map_err(|refusal| QueryError { refusal })
    }

    /// Returns the result of the CUDA driver API (`CUresult`) that `report` has; `None` if the host
    /// does not know it, or speaks a version of the protocol before 1.3.
    #[must_use]
    pub fn cuda_result(&self, report: &FaultReport) -> Option<u32> {
        let is_there = self.minor_version() >= MINOR_OF_CUDA_RESULTS && report.cuda_result != 0;
        is_there.then_some(report.cuda_result)
    }

    /// Asks the device which fault caused the session to be lost. The report's status is `Ok` if
    /// the session is not lost. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the device refuses the message.
    pub fn fault(&self) -> Result<FaultReport, QueryError> {
        self.call::<operation::QueryFault>(&message::Empty {})
            .map_err(|refusal| QueryError { refusal })
    }

    /// Returns whether the session is lost. One exit.
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
