//! The way to the device that there is here.

use std::path::Path;

use causeway_protocol::registers::Register;
use causeway_shim::{ControlArea, Transport, Window};

use crate::socket::{ConnectError, SOCKET_VARIABLE, SocketTransport};

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The socket that [`SOCKET_VARIABLE`] names leads nowhere.
    #[error(transparent)]
    Socket(#[from] ConnectError),
}

/// A device, however it is reached.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinuxTransport {
    /// Over a socket.
    Socket(SocketTransport),
}

impl LinuxTransport {
    /// The device behind the socket that [`SOCKET_VARIABLE`] names.
    ///
    /// # Errors
    /// [`FindError`].
    pub fn find() -> Result<Self, FindError> {
        let path = std::env::var_os(SOCKET_VARIABLE).unwrap_or_default();
        Ok(Self::Socket(SocketTransport::connect(Path::new(&path))?))
    }

    fn inner(&self) -> &dyn Transport {
        match self {
            Self::Socket(socket) => socket,
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

    fn ring_doorbell(&self, index: u32) {
        self.inner().ring_doorbell(index);
    }
}
