//! Regions of a device: what it has behind its BARs, its expansion ROM, and its configuration
//! space.

use std::fmt;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ROM_REGION_INDEX,
};

use crate::Address;

/// Maximum number of base address registers (BARs) of a PCI function.
pub const BARS: u8 = 6;

/// Names one region of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionIndex {
    /// The memory or ports behind base address register 0 to 5. The second half of a 64-bit
    /// register has none.
    Bar(u8),
    /// The expansion ROM.
    Rom,
    /// Configuration space as VFIO shows it: registers that could hurt the host are emulated.
    Config,
}

impl RegionIndex {
    /// Iterates over the names of all regions that a PCI function can have.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..BARS).map(Self::Bar).chain([Self::Rom, Self::Config])
    }

    /// Returns VFIO's index of the region (`VFIO_PCI_*_REGION_INDEX` in linux/vfio.h).
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Bar(bar) => VFIO_PCI_BAR0_REGION_INDEX + u32::from(bar),
            Self::Rom => VFIO_PCI_ROM_REGION_INDEX,
            Self::Config => VFIO_PCI_CONFIG_REGION_INDEX,
        }
    }
}

impl fmt::Display for RegionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar(bar) => write!(f, "BAR {bar}"),
            Self::Rom => f.write_str("the expansion ROM"),
            Self::Config => f.write_str("configuration space"),
        }
    }
}

/// A range of bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Offset in the region of the first byte.
    pub offset: u64,
    /// Length of the area in bytes.
    pub bytes: u64,
}

impl Area {
    /// Returns whether the area contains all of the `bytes` bytes at `offset` of the region.
    pub fn contains(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        let own_end = self.offset.checked_add(self.bytes);
        matches!((end, own_end), (Some(end), Some(own)) if offset >= self.offset && end <= own)
    }
}

/// A region of a PCI function, as VFIO describes it (VFIO_DEVICE_GET_REGION_INFO in linux/vfio.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Which region of the PCI function this is.
    pub index: RegionIndex,
    /// Size of the region in bytes; not zero.
    pub bytes: u64,
    /// Whether the region can be read.
    pub readable: bool,
    /// Whether the region can be written.
    pub writable: bool,
    /// The areas of the region that can be mapped into a process, in ascending order: none, the
    /// whole region, or several if the kernel does not let some parts be mapped
    /// (VFIO_REGION_INFO_CAP_SPARSE_MMAP).
    pub mappable: Vec<Area>,
    /// Whether the pages of the MSI-X table can be mapped too (VFIO_REGION_INFO_CAP_MSIX_MAPPABLE).
    /// Even then a VMM must not map the table into a guest, because the kernel of the host writes
    /// its entries.
    pub msix_mappable: bool,
    /// Offset of the region's first byte in the device's VFIO file.
    pub file_offset: u64,
}

impl Region {
    /// Returns whether a single mapping can cover the `bytes` bytes at `offset` of the region.
    pub fn can_map(&self, offset: u64, bytes: u64) -> bool {
        self.mappable
            .iter()
            .any(|area| area.contains(offset, bytes))
    }

    /// Returns whether `[offset, offset + bytes)` is within the region and not empty.
    pub(crate) fn has(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        bytes != 0 && end.is_some_and(|end| end <= self.bytes)
    }
}

/// Why a region of a device could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The function has no such region.
    #[error("device {address} has no {region}")]
    Absent {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
    },
    /// The access is not within the region.
    #[error(
        "cannot access {bytes:#x} bytes at offset {offset:#x} of {region} of device {address}, \
         which has {size:#x} bytes"
    )]
    Range {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Length of the access in bytes.
        bytes: u64,
        /// Size of the region in bytes.
        size: u64,
    },
    /// The region cannot be read, or cannot be written.
    #[error("{region} of device {address} cannot be {how}")]
    Forbidden {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
        /// "read" or "written".
        how: &'static str,
    },
    /// The kernel carried out only a part of the access.
    #[error(
        "only {done} of {bytes} bytes at offset {offset:#x} of {region} of device {address} were \
         {how}"
    )]
    Short {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
        /// "read" or "written".
        how: &'static str,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Number of bytes that were to be read or written.
        bytes: u64,
        /// Number of bytes that were read or written.
        done: u64,
    },
    /// The kernel refused the access.
    #[error("{bytes} bytes at offset {offset:#x} of {region} of device {address} cannot be {how}")]
    Failed {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
        /// "read" or "written".
        how: &'static str,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Length of the access in bytes.
        bytes: u64,
        /// Its error: EIO if the function does not decode the region's addresses (command
        /// register).
        source: std::io::Error,
    },
}
