//! Resets: what there is, and what it means that there is none.

use std::fmt;
use std::io;

use crate::Address;

/// Whom a reset may hit beside the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReach {
    /// Nobody that is in use.
    Alone,
    /// Other devices of its container, which share its bus.
    Container,
}

/// How a device was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetMethod {
    /// The function alone (VFIO_DEVICE_RESET).
    Function,
    /// All functions of its bus or slot, which are all ours (VFIO_DEVICE_PCI_HOT_RESET).
    Bus,
}

impl fmt::Display for ResetMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "reset of the function",
            Self::Bus => "reset of the bus",
        })
    }
}

/// A device that was not reset.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// It has no reset of its own, and that of its bus would hit others.
    #[error(
        "device {address} cannot be reset alone, and a reset of its bus would reset {} too: what one user leaves in its registers and memory, the next one finds, unless all of them are handed out together",
        list(others)
    )]
    Shared {
        /// The device.
        address: Address,
        /// Functions that are somebody else's, or in use.
        others: Vec<Address>,
    },
    /// It has no reset at all.
    #[error(
        "device {address} cannot be reset: what one user leaves in its registers and memory, the next one finds"
    )]
    Impossible {
        /// The device.
        address: Address,
        /// What the kernel said when asked about a reset of the bus.
        source: io::Error,
    },
    /// It should have been.
    #[error("the {method} of device {address} failed")]
    Failed {
        /// The device.
        address: Address,
        /// What was tried.
        method: ResetMethod,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ResetError {
    /// Whether somebody else holds the lock that a reset takes: whoever unbinds the device does, until it is given back.
    pub fn is_locked_out(&self) -> bool {
        match self {
            Self::Failed { source, .. } => source.kind() == io::ErrorKind::WouldBlock,
            Self::Shared { .. } | Self::Impossible { .. } => false,
        }
    }

    /// Whether it is the device's nature, which no further try changes.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Shared { .. } | Self::Impossible { .. } => true,
            Self::Failed { .. } => false,
        }
    }
}

fn list(addresses: &[Address]) -> String {
    let words: Vec<_> = addresses.iter().map(Address::to_string).collect();
    words.join(", ")
}
