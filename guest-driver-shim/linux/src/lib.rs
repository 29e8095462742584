//! The device for processes on Linux.
//!
//! * [`PciTransport`]: a process in a guest reaches the PCI function, without a driver in the
//!   kernel. Several can at once.
//! * [`SocketTransport`]: an ordinary process on a host talks to `causeway serve`, without a VM.
//!
//! Either is a [`causeway_shim::Transport`], on which [`causeway_shim::Device`] and all that is
//! made from it work as they do in a guest without an operating system. [`load_module`] loads
//! images that lie in the process's own memory.
//!
//! A program in a guest can mark a [`Phase`], for which the host counts VM exits.
//!
//! What was opened belongs to the process that opened it. A child that it forks inherits the
//! mappings, but every request of the child is refused with `DeviceLost`: it has to open the device
//! for itself.

mod area;
mod connect;
mod fork;
mod module;
mod pci;
mod phase;
mod ports;
mod reserved;
mod socket;
mod transport;

pub use causeway_shim as shim;
pub use causeway_testdev_records::{PhasePath, Totals};
pub use connect::{ConnectError, OWNER_VARIABLE, SOCKET_VARIABLE, default_socket};
pub use module::{LoadError, load_module};
pub use pci::{
    Bar, Caching, ClientState, Clients, Interrupts, NotUsable, OpenPciError, PciFunction,
    PciFunctionError, PciTransport,
};
pub use phase::{Phase, PhaseError};
pub use ports::IoPorts;
pub use socket::SocketTransport;
pub use transport::{FindError, LinuxTransport};

/// Largest aperture that the shim accepts: 1 TiB of addresses.
const APERTURE_BYTES_MAX: u64 = 1 << 40;
