//! Regions of a device: what it has behind its BARs, its expansion ROM, and its configuration
//! space.

use std::fmt;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ROM_REGION_INDEX,
};

use crate::Address;

/// BARs that a function can have.
pub const BARS: u8 = 6;

/// Name of a region.
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
    /// Returns all regions that a function can have.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..BARS).map(Self::Bar).chain([Self::Rom, Self::Config])
    }

    /// VFIO's number (linux/vfio.h).
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

/// A range of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte in the region.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Area {
    /// Returns whether all of `[offset, offset + bytes)` is in it.
    pub fn contains(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        let own_end = self.offset.checked_add(self.bytes);
        matches!((end, own_end), (Some(end), Some(own)) if offset >= self.offset && end <= own)
    }
}

/// A region as VFIO describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name.
    pub index: RegionIndex,
    /// Size in bytes; not zero.
    pub bytes: u64,
    /// Whether it can be read.
    pub readable: bool,
    /// Whether it can be written.
    pub writable: bool,
    /// What of it can be mapped into a process, in order: nothing, all of it, or, if the device's
    /// driver keeps parts for itself (VFIO_REGION_INFO_CAP_SPARSE_MMAP), some ranges.
    pub mappable: Vec<Area>,
    /// Whether the pages of the MSI-X table can be mapped too (VFIO_REGION_INFO_CAP_MSIX_MAPPABLE).
    /// Who gives a guest the region keeps the table away from it nevertheless.
    pub msix_mappable: bool,
    /// First byte in the device's file.
    pub file_offset: u64,
}

impl Region {
    /// Returns whether all of `[offset, offset + bytes)` can be mapped by one mapping.
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

/// Why an access to a region was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The function has no such region.
    #[error("device {address} has no {region}")]
    Absent {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
    },
    /// The access is not within the region.
    #[error(
        "bytes {offset:#x}+{bytes:#x} are not within {region} of device {address}, which has {size:#x} bytes"
    )]
    Range {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Bytes that the region has.
        size: u64,
    },
    /// The region cannot be read, or cannot be written.
    #[error("{region} of device {address} cannot be {how}")]
    Forbidden {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
        /// "read" or "written".
        how: &'static str,
    },
    /// The kernel carried out only a part of the access.
    #[error(
        "{done} of {bytes} bytes at {offset:#x} of {region} of device {address} were {how}, no more"
    )]
    Short {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
        /// "read" or "written".
        how: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes carried out.
        done: u64,
    },
    /// The kernel refused the access.
    #[error("{bytes} bytes at {offset:#x} of {region} of device {address} cannot be {how}")]
    Failed {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
        /// "read" or "written".
        how: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Its error: EIO if the function does not decode the region's addresses (command
        /// register).
        source: std::io::Error,
    },
}
