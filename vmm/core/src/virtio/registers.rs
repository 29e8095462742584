//! Registers of a virtio function: the structures of Virtual I/O Device Version 1.2, 4.1.4, and
//! where they lie in the function's BAR.

use super::ring::QueuePart;
use crate::bus::Refusal;

/// Number of the BAR that contains all registers of a virtio function.
pub const BAR: usize = 0;
/// Size in bytes of the BAR that contains all registers of a virtio function.
pub const BAR_BYTES: u64 = 0x8000;

/// A group of registers in the BAR of a virtio function. Each group has a page of its own, so that
/// nothing else lies on the page to which notifications are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// The common configuration structure (4.1.4.3).
    Common,
    /// The interrupt status register (4.1.4.5).
    InterruptStatus,
    /// The device-specific configuration (4.1.4.6).
    Device,
    /// The addresses to which the driver stores to notify queues (4.1.4.4).
    Notify,
    /// The MSI-X table.
    MsixTable,
    /// The pending bits of MSI-X.
    MsixPending,
}

/// Bytes from one structure to the next.
const PAGE: u64 = 0x1000;
/// All structures, in their order in the BAR.
const STRUCTURES: [Structure; 6] = [
    Structure::Common,
    Structure::InterruptStatus,
    Structure::Device,
    Structure::Notify,
    Structure::MsixTable,
    Structure::MsixPending,
];

impl Structure {
    /// Returns the offset of the group of registers in the BAR.
    pub const fn offset(self) -> u64 {
        self as u64 * PAGE
    }

    /// Returns the group of registers that contains `offset` of the BAR, and the offset within the
    /// group. Returns `None` if `offset` lies behind the last group.
    pub fn at(offset: u64) -> Option<(Self, u64)> {
        let structure = usize::try_from(offset / PAGE).ok()?;
        Some((*STRUCTURES.get(structure)?, offset % PAGE))
    }
}

/// Size in bytes of the common configuration structure, without the registers of optional features
/// that this VMM does not offer.
pub const COMMON_BYTES: u32 = 0x38;
/// Distance in bytes between the addresses to which the driver stores to notify two adjacent queues
/// (`notify_off_multiplier`, 4.1.4.4).
pub const NOTIFY_STRIDE: u32 = 4;

/// PCI capability ID of vendor-specific capabilities. All capabilities of virtio have this ID.
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// Type (`cfg_type`) of the virtio capability through which a driver can access the BAR's registers
/// by way of configuration space (`VIRTIO_PCI_CAP_PCI_CFG`, 4.1.4.9).
pub const CAPABILITY_WINDOW: u8 = 5;

/// A register of the common configuration structure. Drivers access a 64-bit register in two
/// halves, each of which is a register of its own here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// Selects the half of the device's feature bits that `DeviceFeature` contains.
    DeviceFeatureSelect,
    /// The selected half of the feature bits that the device offers.
    DeviceFeature,
    /// Selects the half of the driver's feature bits that `DriverFeature` contains.
    DriverFeatureSelect,
    /// The selected half of the feature bits that the driver has accepted.
    DriverFeature,
    /// MSI-X vector for changes of the device's configuration.
    ConfigVector,
    /// Number of queues of the device.
    QueueCount,
    /// Device status.
    Status,
    /// A number that changes whenever the device's configuration does.
    Generation,
    /// Number of the queue to which the other queue registers belong.
    QueueSelect,
    /// Number of entries of the selected queue.
    QueueSize,
    /// MSI-X vector of the selected queue.
    QueueVector,
    /// Whether the selected queue is in use.
    QueueEnable,
    /// Offset of the address to which the driver stores to notify the selected queue, in units of
    /// [`NOTIFY_STRIDE`].
    QueueNotifyOffset,
    /// One half of the address of a part of the selected queue: 0 is the low half, 1 the high one.
    QueueAddress(QueuePart, u32),
}

/// Offset and width in bytes of each register (4.1.4.3, `struct virtio_pci_common_cfg`).
const COMMON: [(u64, usize, Common); 19] = [
    (0x00, 4, Common::DeviceFeatureSelect),
    (0x04, 4, Common::DeviceFeature),
    (0x08, 4, Common::DriverFeatureSelect),
    (0x0c, 4, Common::DriverFeature),
    (0x10, 2, Common::ConfigVector),
    (0x12, 2, Common::QueueCount),
    (0x14, 1, Common::Status),
    (0x15, 1, Common::Generation),
    (0x16, 2, Common::QueueSelect),
    (0x18, 2, Common::QueueSize),
    (0x1a, 2, Common::QueueVector),
    (0x1c, 2, Common::QueueEnable),
    (0x1e, 2, Common::QueueNotifyOffset),
    (0x20, 4, Common::QueueAddress(QueuePart::Descriptors, 0)),
    (0x24, 4, Common::QueueAddress(QueuePart::Descriptors, 1)),
    (0x28, 4, Common::QueueAddress(QueuePart::DriverRing, 0)),
    (0x2c, 4, Common::QueueAddress(QueuePart::DriverRing, 1)),
    (0x30, 4, Common::QueueAddress(QueuePart::DeviceRing, 0)),
    (0x34, 4, Common::QueueAddress(QueuePart::DeviceRing, 1)),
];

impl Common {
    /// Returns the register that an access of `bytes` bytes at `offset` of the common configuration
    /// structure goes to.
    ///
    /// # Errors
    /// [`Refusal::NoRegister`] if no register begins at `offset`, [`Refusal::BadSize`] if the
    /// register there has another width.
    pub fn at(offset: u64, bytes: usize) -> Result<Self, Refusal> {
        let entry = COMMON.iter().find(|(at, ..)| *at == offset);
        let (_, width, register) = entry.ok_or(Refusal::NoRegister)?;
        (*width == bytes)
            .then_some(*register)
            .ok_or(Refusal::BadSize)
    }
}

/// Bits of the interrupt status register (4.1.4.5). A load from the register clears all of them.
pub mod interrupt_status {
    /// Bit 0 of the interrupt status register: the device has finished requests of a queue.
    pub const QUEUE: u8 = 1;
    /// Bit 1 of the interrupt status register: the device's configuration or status has changed.
    pub const CONFIGURATION: u8 = 2;
}

/// Value of a register that selects an MSI-X vector if no vector is selected
/// (`VIRTIO_MSI_NO_VECTOR`, 4.1.5.1.2).
pub const NO_VECTOR: u16 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_follow_each_other_and_fill_the_structure() {
        let mut end = 0;
        for (offset, bytes, register) in COMMON {
            assert_eq!(offset, end, "{register:?}");
            assert!(offset.is_multiple_of(bytes as u64), "{register:?}");
            assert_eq!(Common::at(offset, bytes), Ok(register));
            assert_eq!(Common::at(offset, bytes + 1), Err(Refusal::BadSize));
            end = offset + bytes as u64;
        }
        assert_eq!(end, u64::from(COMMON_BYTES));
        assert_eq!(Common::at(1, 1), Err(Refusal::NoRegister));
        assert_eq!(Common::at(end, 4), Err(Refusal::NoRegister));
    }

    #[test]
    fn structures_are_found_where_they_are_said_to_be() {
        for structure in STRUCTURES {
            let last = structure.offset() + PAGE - 1;
            assert_eq!(Structure::at(structure.offset()), Some((structure, 0)));
            assert_eq!(Structure::at(last), Some((structure, PAGE - 1)));
        }
        assert_eq!(Structure::at(6 * PAGE), None);
        const { assert!(6 * PAGE <= BAR_BYTES) };
    }
}
