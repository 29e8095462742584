//! Registers of a virtio function: the structures of Virtual I/O Device Version 1.2, 4.1.4, and
//! where they lie in the function's BAR.

use crate::bus::Refusal;

/// Number of the BAR with all registers.
pub const BAR: usize = 0;
/// Size of that BAR in bytes.
pub const BAR_BYTES: u64 = 0x8000;

/// A structure of registers in the BAR. Each has a page of its own, so that nothing else lies on
/// the page of the notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Common configuration (4.1.4.3).
    Common,
    /// Interrupt status (4.1.4.5).
    InterruptStatus,
    /// The device's own configuration (4.1.4.6).
    Device,
    /// Notifications (4.1.4.4).
    Notify,
    /// MSI-X table.
    MsixTable,
    /// MSI-X pending bits.
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
    /// Returns the structure's offset in the BAR.
    pub const fn offset(self) -> u64 {
        self as u64 * PAGE
    }

    /// Returns the structure at `offset` of the BAR, and the offset within the structure; `None`
    /// behind the last structure.
    pub fn at(offset: u64) -> Option<(Self, u64)> {
        let structure = usize::try_from(offset / PAGE).ok()?;
        Some((*STRUCTURES.get(structure)?, offset % PAGE))
    }
}

/// Bytes of the common configuration structure, without the registers of features that are not
/// offered here.
pub const COMMON_BYTES: u32 = 0x38;
/// Bytes from one queue's notification address to the next one's (`notify_off_multiplier`,
/// 4.1.4.4).
pub const NOTIFY_STRIDE: u32 = 4;

/// PCI capability ID for vendor-specific capabilities, such as all of virtio.
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// `cfg_type` of the capability through which a driver reaches the BAR's registers by configuration
/// space (`VIRTIO_PCI_CAP_PCI_CFG`, 4.1.4.9).
pub const CAPABILITY_WINDOW: u8 = 5;

/// A register of the common configuration structure. Drivers access 64-bit registers by halves, so
/// each half is a register here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// Which half of the device's features `DeviceFeature` contains.
    DeviceFeatureSelect,
    /// The selected half of the device's features.
    DeviceFeature,
    /// Which half of the driver's features `DriverFeature` contains.
    DriverFeatureSelect,
    /// The selected half of the driver's features.
    DriverFeature,
    /// Vector for changes of configuration.
    ConfigVector,
    /// Number of queues.
    QueueCount,
    /// Device status.
    Status,
    /// A number that changes with the device's configuration.
    Generation,
    /// The queue to which the following registers belong.
    QueueSelect,
    /// Number of the queue's entries.
    QueueSize,
    /// Vector of the queue.
    QueueVector,
    /// Whether the queue is in use.
    QueueEnable,
    /// Offset at which the driver notifies the queue, in units of [`NOTIFY_STRIDE`].
    QueueNotifyOffset,
    /// Half of the address of a part of the queue: number of the part, as in
    /// [`super::ring::RingPlace::parts`], and of the half, 0 for the low one.
    QueuePart(usize, u32),
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
    (0x20, 4, Common::QueuePart(0, 0)),
    (0x24, 4, Common::QueuePart(0, 1)),
    (0x28, 4, Common::QueuePart(1, 0)),
    (0x2c, 4, Common::QueuePart(1, 1)),
    (0x30, 4, Common::QueuePart(2, 0)),
    (0x34, 4, Common::QueuePart(2, 1)),
];

impl Common {
    /// Returns the register that an access of `bytes` bytes at `offset` of the structure hits.
    ///
    /// # Errors
    /// [`Refusal::NoRegister`] if no register begins at `offset`, [`Refusal::BadSize`] if it has
    /// another width.
    pub fn at(offset: u64, bytes: usize) -> Result<Self, Refusal> {
        let entry = COMMON.iter().find(|(at, ..)| *at == offset);
        let (_, width, register) = entry.ok_or(Refusal::NoRegister)?;
        (*width == bytes)
            .then_some(*register)
            .ok_or(Refusal::BadSize)
    }
}

/// Bits of the interrupt status register, which a load clears (4.1.4.5).
pub mod interrupt_status {
    /// Bit 0: the device is done with requests of a queue.
    pub const QUEUE: u8 = 1;
    /// Bit 1: the device's configuration or status has changed.
    pub const CONFIGURATION: u8 = 2;
}

/// Value of a vector register for "no vector" (`VIRTIO_MSI_NO_VECTOR`, 4.1.5.1.2).
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
