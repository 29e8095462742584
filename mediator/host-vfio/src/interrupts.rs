//! Interrupts of a device: what it has, and which events they signal.

use std::fmt;
use std::os::fd::BorrowedFd;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_AUTOMASKED, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_MASKABLE,
    VFIO_IRQ_INFO_NORESIZE, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_INTX_IRQ_INDEX,
    VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX,
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
    /// Number of vectors; 0 if the device has none of this kind.
    pub count: u32,
    /// Whether VFIO can signal an eventfd for these interrupts (VFIO_IRQ_INFO_EVENTFD in
    /// linux/vfio.h).
    pub eventfd: bool,
    /// Whether these interrupts can be masked (VFIO_IRQ_INFO_MASKABLE).
    pub maskable: bool,
    /// Whether the kernel masks an interrupt each time that it is signalled, until it is unmasked
    /// (VFIO_IRQ_INFO_AUTOMASKED).
    pub automasked: bool,
    /// Whether a vector can be added only by disabling all vectors and enabling them again
    /// (VFIO_IRQ_INFO_NORESIZE).
    pub fixed: bool,
}

impl InterruptInfo {
    /// Returns what `vfio_irq_info` says, with its `count` and its `flags`.
    pub(crate) fn new(kind: InterruptKind, count: u32, flags: u32) -> Self {
        Self {
            kind,
            count,
            eventfd: flags & VFIO_IRQ_INFO_EVENTFD != 0,
            maskable: flags & VFIO_IRQ_INFO_MASKABLE != 0,
            automasked: flags & VFIO_IRQ_INFO_AUTOMASKED != 0,
            fixed: flags & VFIO_IRQ_INFO_NORESIZE != 0,
        }
    }
}

/// A change of the interrupts of one kind (VFIO_DEVICE_SET_IRQS in linux/vfio.h).
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Have the vectors from `start` signal these events, or none.
    Signal {
        /// First vector.
        start: u32,
        /// An event for each.
        events: &'a [Option<BorrowedFd<'a>>],
    },
    /// Unmask vector 0 whenever this event is signalled (INTx).
    UnmaskOn(BorrowedFd<'a>),
    /// Mask vector 0 (INTx).
    Mask,
    /// Unmask vector 0 (INTx).
    Unmask,
    /// No interrupts of this kind any more.
    Disable,
}

/// Why interrupts cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum InterruptError {
    /// The device has none of that kind, or VFIO cannot signal them.
    #[error("device {address} has no {kind} interrupts")]
    Absent {
        /// The device.
        address: Address,
        /// The kind.
        kind: InterruptKind,
    },
    /// The device has fewer vectors.
    #[error("device {address} has {count} {kind} vectors, so there is no vector {vector}")]
    Vector {
        /// The device.
        address: Address,
        /// The kind.
        kind: InterruptKind,
        /// The vector.
        vector: u64,
        /// Number of vectors.
        count: u32,
    },
    /// Pins are not set vector by vector, and notifications are for [`crate::Device::watch`].
    #[error(
        "cannot set vectors of the {kind} interrupts of device {address}: only MSI and MSI-X have \
         vectors"
    )]
    NotMessages {
        /// The device.
        address: Address,
        /// The kind.
        kind: InterruptKind,
    },
    /// The vector is beyond those that are enabled.
    #[error(
        "cannot set {kind} vector {vector} of device {address}: only {enabled} vectors are \
         enabled; enable all of them at once"
    )]
    NotEnabled {
        /// The device.
        address: Address,
        /// The kind.
        kind: InterruptKind,
        /// The vector.
        vector: u32,
        /// Number of enabled vectors.
        enabled: u32,
    },
    /// The kernel refused the change.
    #[error("cannot {what} the {kind} interrupts of device {address}")]
    Failed {
        /// The device.
        address: Address,
        /// The kind.
        kind: InterruptKind,
        /// "set up", "mask", …
        what: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}
