//! The device of this process: behind a socket or as a PCI function.

use std::path::Path;

use causeway_protocol::registers::Register;
use causeway_shim::{ControlArea, Sleeping, Transport, Window};

use crate::pci::{OpenPciError, PciTransport};
use crate::socket::{ConnectError, SOCKET_VARIABLE, SocketTransport};

/// Why no device was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No server answers at the socket that [`SOCKET_VARIABLE`] names.
    #[error(transparent)]
    Socket(#[from] ConnectError),
    /// [`SOCKET_VARIABLE`] is not set, and no PCI function can be used.
    #[error(transparent)]
    Pci(#[from] OpenPciError),
}

/// A device, however it is reached.
#[derive(Debug)]
pub enum LinuxTransport {
    /// Over a socket.
    Socket(SocketTransport),
    /// As a PCI function.
    Pci(PciTransport),
}

impl LinuxTransport {
    /// Opens the device behind the socket that [`SOCKET_VARIABLE`] names. If that is not set, opens
    /// the PCI function of this machine.
    ///
    /// # Errors
    /// [`FindError::Socket`] or [`FindError::Pci`], for the way that was tried.
    pub fn find() -> Result<Self, FindError> {
        match std::env::var_os(SOCKET_VARIABLE) {
            Some(path) => Ok(Self::Socket(SocketTransport::connect(Path::new(&path))?)),
            None => Ok(Self::Pci(PciTransport::open()?)),
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
