//! Resets: what there is, and what it means that there is none.

use std::fmt;
use std::io;

use crate::Address;

/// Which other devices a reset may affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReach {
    /// No other device that is in use.
    Alone,
    /// Other devices of the same container, if they are on the same bus.
    Container,
}

/// The way in which a device was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetMethod {
    /// The function alone (VFIO_DEVICE_RESET).
    Function,
    /// All functions of its bus or slot, which are all open in this process
    /// (VFIO_DEVICE_PCI_HOT_RESET).
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

/// Why a device cannot be reset, or its reset failed.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// The device has no reset of its own, and a reset of its bus would affect others.
    #[error(
        "device {address} cannot be reset alone, and a reset of its bus would reset {} too, so the \
         next user finds what the last one left in its registers and memory; to have the bus \
         reset, give all of these devices to one VM with --vfio",
        list(others)
    )]
    Shared {
        /// PCI address of the device.
        address: Address,
        /// Functions that are in use, or open elsewhere.
        others: Vec<Address>,
    },
    /// The device has no reset.
    #[error(
        "device {address} cannot be reset, so its next user finds what the last one left in its \
         registers and memory"
    )]
    Impossible {
        /// PCI address of the device.
        address: Address,
        /// The kernel's error for a reset of the bus.
        source: io::Error,
    },
    /// The reset failed.
    #[error("the {method} of device {address} failed")]
    Failed {
        /// PCI address of the device.
        address: Address,
        /// The reset that was tried.
        method: ResetMethod,
        /// The kernel's error.
        source: io::Error,
    },
}

impl ResetError {
    /// Returns whether the reset failed because the kernel has locked the device. The kernel does
    /// that while an administrator unbinds the device from its driver; the unbinding waits until
    /// this process closes the device.
    pub fn is_locked_out(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// Returns whether every further attempt to reset the device would fail too, because the device
    /// has no reset, or only one that would affect other devices.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Shared { .. } | Self::Impossible { .. })
    }
}

fn list(addresses: &[Address]) -> String {
    let words: Vec<_> = addresses.iter().map(Address::to_string).collect();
    words.join(", ")
}
