//! The device of this process: behind a socket or as a PCI function.

use std::ffi::OsString;
use std::path::Path;

use causeway_protocol::registers::Register;
use causeway_protocol::socket::FURTHER;
use causeway_shim::{ControlArea, Sleeping, Transport, Window};

use crate::connect::{ConnectError, SOCKET_VARIABLE, default_socket};
use crate::pci::{FUNCTION_VARIABLE, OpenPciError, PciFunction, PciFunctionError, PciTransport};
use crate::socket::SocketTransport;

/// Why this process found no device.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No server answers at the socket that the environment variable [`SOCKET_VARIABLE`] names, or
    /// at the default one.
    #[error(transparent)]
    Socket(#[from] ConnectError),
    /// The environment variable [`SOCKET_VARIABLE`] is not set, no PCI function can be used, and
    /// there is no socket at the default path.
    #[error(transparent)]
    Pci(#[from] OpenPciError),
}

/// The transport of a Linux process: to a socket of `causeway serve`, or to a PCI function.
#[derive(Debug)]
pub enum LinuxTransport {
    /// A connection to `causeway serve`.
    Socket(SocketTransport),
    /// The PCI function of the guest that this process runs in.
    Pci(PciTransport),
}

impl LinuxTransport {
    /// Connects to the socket that the environment variable [`SOCKET_VARIABLE`] names. If it is not
    /// set, opens the PCI function of this machine; on a machine without one, connects to
    /// [`default_socket`], if there is a socket.
    ///
    /// # Errors
    /// [`FindError::Socket`] if the connection fails, [`FindError::Pci`] if the function cannot be
    /// used, or there is neither function nor socket.
    pub fn find() -> Result<Self, FindError> {
        let connect = |path: &Path| Ok(Self::Socket(SocketTransport::connect(path)?));
        if let Some(path) = std::env::var_os(SOCKET_VARIABLE) {
            return connect(Path::new(&path));
        }
        let error = match PciTransport::open() {
            Ok(function) => return Ok(Self::Pci(function)),
            Err(error) => error,
        };
        let is_absent = matches!(error, OpenPciError::Function(PciFunctionError::Absent));
        match default_socket().filter(|path| is_absent && path.exists()) {
            Some(path) => connect(&path),
            None => Err(error.into()),
        }
    }

    /// Opens the device of another GPU that this process has beside this one, which is the first:
    /// the next PCI functions of this machine have numbers from 1, in the order of their addresses,
    /// and so do the further sockets of the server. Returns `None` if there is no such GPU: there
    /// never is one if the environment names the function.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub fn beside(&self, number: u32) -> Result<Option<Self>, FindError> {
        match self {
            Self::Socket(socket) => {
                let mut path = OsString::from(socket.path());
                path.push(format!("{FURTHER}{number}"));
                let path = Path::new(&path);
                Ok(match path.exists() {
                    true => Some(Self::Socket(SocketTransport::connect(path)?)),
                    false => None,
                })
            }
            Self::Pci(_) if std::env::var_os(FUNCTION_VARIABLE).is_some() => Ok(None),
            Self::Pci(_) => match PciFunction::all().into_iter().nth(number as usize) {
                Some(function) => {
                    let opened = PciTransport::open_function(function)?;
                    Ok(Some(Self::Pci(opened)))
                }
                None => Ok(None),
            },
        }
    }

    fn inner(&self) -> &dyn Transport {
        match self {
            Self::Socket(socket) => socket,
            Self::Pci(pci) => pci,
        }
    }
}

impl Transport for LinuxTransport {
    fn read_register(&self, register: Register) -> u32 {
        self.inner().read_register(register)
    }

    fn write_register(&self, register: Register, value: u32) {
        self.inner().write_register(register, value);
    }

    fn control_area(&self) -> ControlArea {
        self.inner().control_area()
    }

    fn aperture(&self) -> Window {
        self.inner().aperture()
    }

    fn reach(&self, offset: u64, bytes: u64) -> bool {
        self.inner().reach(offset, bytes)
    }

    fn sleeping(&self) -> Sleeping {
        self.inner().sleeping()
    }

    fn sleep(&self, limit_ns: u64) -> u64 {
        self.inner().sleep(limit_ns)
    }

    fn ring_doorbell(&self, index: u32) {
        self.inner().ring_doorbell(index);
    }
}
