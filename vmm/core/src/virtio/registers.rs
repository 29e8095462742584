//! Registers of a virtio function: the structures of Virtual I/O Device Version 1.2, 4.1.4, and
//! where they lie in the function's BAR.

/// The BAR.
pub const BAR: usize = 0;
/// Its size in bytes.
pub const BAR_BYTES: u64 = 0x8000;

/// A structure in the BAR. Each has a page of its own, so that notifications alone are in theirs.
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

impl Structure {
    /// Offset in the BAR.
    pub const fn offset(self) -> u64 {
        self as u64 * PAGE
    }

    /// The structure at an offset of the BAR, and the offset in it.
    pub fn at(offset: u64) -> Option<(Self, u64)> {
        let structure = match offset / PAGE {
            0 => Self::Common,
            1 => Self::InterruptStatus,
            2 => Self::Device,
            3 => Self::Notify,
            4 => Self::MsixTable,
            5 => Self::MsixPending,
            _ => return None,
        };
        Some((structure, offset % PAGE))
    }
}

/// Bytes of common configuration, without what features add that are not offered here.
pub const COMMON_BYTES: u32 = 0x38;
/// Bytes between the notification addresses of queues (`notify_off_multiplier`).
pub const NOTIFY_STRIDE: u32 = 4;

/// Capability ID of a vendor's own: those of virtio.
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// `cfg_type` of the capability through which all others can be reached without decoding the BAR
/// (4.1.4.9).
pub const CAPABILITY_WINDOW: u8 = 5;

impl Structure {
    /// Returns `cfg_type` of the capability that says where the structure is, and the structure's
    /// length, for a device with this many queues and bytes of configuration.
    pub fn capability(self, queues: u16, device_bytes: u32) -> Option<(u8, u32)> {
        match self {
            Self::Common => Some((1, COMMON_BYTES)),
            Self::Notify => Some((2, NOTIFY_STRIDE * u32::from(queues))),
            Self::InterruptStatus => Some((3, 4)),
            Self::Device => Some((4, device_bytes)),
            Self::MsixTable | Self::MsixPending => None,
        }
    }
}

/// A register of common configuration. Halves of 64-bit registers are registers of their own:
/// drivers access them so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// Which half of the device's features is shown.
    DeviceFeatureSelect,
    /// That half.
    DeviceFeature,
    /// Which half of the driver's features is set.
    DriverFeatureSelect,
    /// That half.
    DriverFeature,
    /// Vector of changes of configuration.
    ConfigVector,
    /// Number of queues.
    QueueCount,
    /// Device status.
    Status,
    /// Changes when the device's configuration does.
    Generation,
    /// Which queue the following are about.
    QueueSelect,
    /// Entries.
    QueueSize,
    /// Vector.
    QueueVector,
    /// Whether it is in use.
    QueueEnable,
    /// Where it is notified, in units of [`NOTIFY_STRIDE`].
    QueueNotifyOffset,
    /// Descriptor table, low half.
    DescriptorsLow,
    /// Descriptor table, high half.
    DescriptorsHigh,
    /// Driver's ring, low half.
    DriverLow,
    /// Driver's ring, high half.
    DriverHigh,
    /// Device's ring, low half.
    DeviceLow,
    /// Device's ring, high half.
    DeviceHigh,
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
    (0x20, 4, Common::DescriptorsLow),
    (0x24, 4, Common::DescriptorsHigh),
    (0x28, 4, Common::DriverLow),
    (0x2c, 4, Common::DriverHigh),
    (0x30, 4, Common::DeviceLow),
    (0x34, 4, Common::DeviceHigh),
];

impl Common {
    /// The register at an offset, and its width in bytes.
    pub fn at(offset: u64) -> Option<(Self, usize)> {
        let entry = COMMON.iter().find(|(at, _, _)| *at == offset);
        entry.map(|(_, bytes, register)| (*register, *bytes))
    }
}

/// Bits of interrupt status, which a load clears.
pub mod interrupt_status {
    /// A queue has requests that were given back.
    pub const QUEUE: u8 = 1;
    /// Configuration or device status changed.
    pub const CONFIGURATION: u8 = 2;
}

/// No vector (4.1.5.1.2).
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
            assert_eq!(Common::at(offset), Some((register, bytes)));
            end = offset + bytes as u64;
        }
        assert_eq!(end, u64::from(COMMON_BYTES));
        assert_eq!(Common::at(1), None);
        assert_eq!(Common::at(end), None);
    }

    #[test]
    fn structures_are_found_where_they_are_said_to_be() {
        use Structure::{Common, Device, InterruptStatus, MsixPending, MsixTable, Notify};
        for structure in [
            Common,
            InterruptStatus,
            Device,
            Notify,
            MsixTable,
            MsixPending,
        ] {
            let last = structure.offset() + PAGE - 1;
            assert_eq!(Structure::at(structure.offset()), Some((structure, 0)));
            assert_eq!(Structure::at(last), Some((structure, PAGE - 1)));
        }
        assert_eq!(Structure::at(6 * PAGE), None);
        const { assert!(6 * PAGE <= BAR_BYTES) };
    }
}
