//! Interrupts of a device: what it has, and which events they signal.

use std::fmt;
use std::os::fd::BorrowedFd;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX,
};

use crate::Address;

/// The kinds of interrupts of a PCI device, and of notifications that VFIO signals like interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterruptKind {
    /// A level-triggered pin, which devices may share.
    Intx,
    /// MSI: messages with one address for all vectors.
    Msi,
    /// MSI-X: messages with an address for each vector.
    Msix,
    /// The device reported an uncorrectable error (PCIe AER).
    Error,
    /// The host wants the device back.
    Request,
}

impl InterruptKind {
    /// All kinds of interrupts and notifications.
    pub const ALL: [Self; 5] = [
        Self::Intx,
        Self::Msi,
        Self::Msix,
        Self::Error,
        Self::Request,
    ];

    /// Returns VFIO's index of the interrupts (`VFIO_PCI_*_IRQ_INDEX` in linux/vfio.h).
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Intx => VFIO_PCI_INTX_IRQ_INDEX,
            Self::Msi => VFIO_PCI_MSI_IRQ_INDEX,
            Self::Msix => VFIO_PCI_MSIX_IRQ_INDEX,
            Self::Error => VFIO_PCI_ERR_IRQ_INDEX,
            Self::Request => VFIO_PCI_REQ_IRQ_INDEX,
        }
    }
}

impl fmt::Display for InterruptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Intx => "INTx",
            Self::Msi => "MSI",
            Self::Msix => "MSI-X",
            Self::Error => "error",
            Self::Request => "request",
        })
    }
}

/// The interrupts of one kind, as VFIO describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptInfo {
    /// Kind of these interrupts.
    pub kind: InterruptKind,
    /// Number of interrupts of this kind (for MSI and MSI-X: vectors); 0 if the device has none.
    pub count: u32,
    /// Whether VFIO can signal an eventfd for these interrupts (VFIO_IRQ_INFO_EVENTFD in
    /// linux/vfio.h).
    pub eventfd: bool,
}

impl InterruptInfo {
    /// Returns what holds for a kind of which a device has no interrupts.
    pub(crate) fn none(kind: InterruptKind) -> Self {
        let (count, eventfd) = (0, false);
        Self {
            kind,
            count,
            eventfd,
        }
    }
}

/// A change of the interrupts of one kind (VFIO_DEVICE_SET_IRQS in linux/vfio.h).
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Connect the vectors from 0 on to these events; a vector with `None` signals nothing.
    Signal(&'a [Option<BorrowedFd<'a>>]),
    /// Unmask vector 0 whenever this event is signalled (INTx).
    UnmaskOn(BorrowedFd<'a>),
    /// No interrupts of this kind any more.
    Disable,
}

/// Why the interrupts of a device cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum InterruptError {
    /// The device has none of that kind, or VFIO cannot signal them.
    #[error("device {address} has no {kind} interrupts")]
    Absent {
        /// PCI address of the device.
        address: Address,
        /// Kind of the interrupts.
        kind: InterruptKind,
    },
    /// The device has fewer vectors.
    #[error(
        "device {address} has no {kind} vector {vector}: it has {count} vectors, counted from 0"
    )]
    Vector {
        /// PCI address of the device.
        address: Address,
        /// Kind of the interrupts.
        kind: InterruptKind,
        /// Number of the vector that was asked for.
        vector: u64,
        /// Number of vectors that the device has.
        count: u32,
    },
    /// Pins are not set vector by vector, and notifications are for [`crate::Device::watch`].
    #[error(
        "cannot set vectors of the {kind} interrupts of device {address}: only MSI and MSI-X have \
         vectors"
    )]
    NotMessages {
        /// PCI address of the device.
        address: Address,
        /// Kind of the interrupts.
        kind: InterruptKind,
    },
    /// The kernel refused the change.
    #[error("cannot {what} the {kind} interrupts of device {address}")]
    Failed {
        /// PCI address of the device.
        address: Address,
        /// Kind of the interrupts.
        kind: InterruptKind,
        /// What was to be done, for example "set up" or "disable".
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}
