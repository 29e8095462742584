//! A device that is passed through to the guest, as a plan names it.

use core::fmt;

/// Memory of a PCI device that is passed through to the guest and measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// PCI vendor ID of the device.
    pub vendor: u16,
    /// PCI device ID of the device.
    pub device: u16,
    /// Number of the base address register (BAR) that maps the memory.
    pub bar: u8,
    /// Offset of the memory in the BAR, in bytes: a multiple of 4 KiB.
    pub offset: u64,
    /// Size of the memory in bytes: a multiple of 4 KiB.
    pub bytes: u64,
}

impl fmt::Display for DeviceMemory {
    /// As [`Self::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            vendor,
            device,
            bar,
            offset,
            bytes,
        } = self;
        write!(f, "{vendor:04x}:{device:04x}:{bar}:{offset}:{bytes}")
    }
}

impl DeviceMemory {
    /// Parses the text `VENDOR:DEVICE:BAR:OFFSET:BYTES`, of which the first two are hexadecimal.
    /// Returns `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let mut id = || u16::from_str_radix(words.next()?, 16).ok();
        let (vendor, device) = (id()?, id()?);
        let memory = Self {
            vendor,
            device,
            bar: words.next()?.parse().ok()?,
            offset: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(memory)
    }
}

/// Why a plan does not measure a workload at some size by some mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exclusion {
    /// One operation of the workload would take more exits than a sample may.
    #[error(
        "at this size and by this mechanism, a single operation would cause more VM exits than the \
         benchmark allows for a sample"
    )]
    Exits,
    /// The mechanism needs a passed-through device, and there is none.
    #[error("no device is passed through to the guest (--vfio ADDRESS names one)")]
    NoDevice,
    /// The workload launches kernels, which only the passed-through device's own driver can do.
    #[error(
        "the workload launches kernels, but on a passed-through device only the device's own \
         driver can launch them"
    )]
    NoKernels,
    /// The workload allocates memory, and the passed-through device has no allocator.
    #[error(
        "the workload allocates memory, but nothing is left to allocate on a passed-through \
         device: the guest already has all of the device's memory"
    )]
    NoAllocator,
    /// The workload needs more memory than the passed-through device has.
    #[error(
        "the workload needs more memory than the passed-through device offers: only {bytes} bytes \
         of its memory can be mapped"
    )]
    Memory {
        /// Size of the device's memory in bytes.
        bytes: u64,
    },
}

impl Exclusion {
    /// Returns whether this reason excludes all sizes of the workload, and not one size only.
    #[must_use]
    pub const fn is_of_all_sizes(self) -> bool {
        matches!(self, Self::NoDevice | Self::NoKernels | Self::NoAllocator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn memory_is_read_as_it_was_written() {
        let memory = DeviceMemory {
            vendor: 0x1af4,
            device: 0x1110,
            bar: 2,
            offset: 4096,
            bytes: 64 << 20,
        };
        let text = memory.to_string();
        assert_eq!(text, "1af4:1110:2:4096:67108864");
        assert_eq!(DeviceMemory::parse(&text), Some(memory));
        for wrong in [
            "",
            "1af4:1110:2:0",
            "1af4:1110:2:0:x",
            "1af4:1110:2:0:1:1",
            "x:1110:2:0:1",
        ] {
            assert_eq!(DeviceMemory::parse(wrong), None, "{wrong}");
        }
    }
}
