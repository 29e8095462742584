//! What can be missing.

use std::io;

use ash::vk;

use crate::Uuid;

/// Why Vulkan cannot make the memory of a device visible to CPUs.
#[derive(Debug, thiserror::Error)]
pub enum VulkanError {
    /// The Vulkan loader is not installed.
    #[error("the Vulkan loader (libvulkan.so.1) is not installed: install libvulkan1")]
    Loader(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The loader is too old for external memory.
    #[error("the Vulkan loader has version {major}.{minor}, and 1.1 is needed: update libvulkan1")]
    Version {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// No physical device has the UUID.
    #[error(
        "no Vulkan device has UUID {}; found: {}: install the Vulkan driver of that GPU",
        hex(wanted),
        names(found)
    )]
    Device {
        /// The UUID.
        wanted: Uuid,
        /// Names and UUIDs of the devices that Vulkan has.
        found: Vec<(String, Uuid)>,
    },
    /// The device cannot import memory by file descriptor.
    #[error("Vulkan device '{device}' cannot import memory: it lacks {missing}")]
    Extension {
        /// Name of the device.
        device: String,
        /// The extension or feature that it lacks.
        missing: &'static str,
    },
    /// The device's memory is not visible to CPUs.
    #[error(
        "Vulkan device '{device}' has no memory type for imports that is DEVICE_LOCAL, HOST_VISIBLE and HOST_COHERENT: enable the resizable BAR, or use host memory"
    )]
    MemoryType {
        /// Name of the device.
        device: String,
    },
    /// A call failed.
    #[error("{call} failed")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// What it returned.
        source: vk::Result,
    },
}

/// Why a descriptor is refused as memory of a device.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The descriptor is of a kind that has no memory behind it.
    #[error("the descriptor is a {kind}, not memory of a device")]
    Kind {
        /// Its kind, such as "socket".
        kind: &'static str,
    },
    /// The descriptor has less memory than announced.
    #[error("the descriptor has {has} bytes, and {wanted} were announced")]
    Size {
        /// Bytes that it has.
        has: u64,
        /// Bytes that it should have.
        wanted: u64,
    },
    /// The descriptor is a file that its owner can shorten under a mapping.
    #[error("the descriptor is a file whose owner can shorten it: its size must be sealed")]
    Seal(#[source] io::Error),
    /// The kernel does not tell what the descriptor is.
    #[error("the descriptor cannot be examined")]
    Examine(#[source] io::Error),
    /// The size is no size of device memory.
    #[error("invalid size {bytes} of device memory: a multiple of 4096, not 0")]
    Bytes {
        /// Bytes announced.
        bytes: u64,
    },
}

/// Returns a UUID as NVIDIA's tools write it.
pub(crate) fn hex(uuid: &Uuid) -> String {
    let group = |range: std::ops::Range<usize>| -> String {
        uuid[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    [0..4, 4..6, 6..8, 8..10, 10..16].map(group).join("-")
}

fn names(found: &[(String, Uuid)]) -> String {
    if found.is_empty() {
        return "none".to_owned();
    }
    let one = |(name, uuid): &(String, Uuid)| format!("{name} ({})", hex(uuid));
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_named_with_those_that_are() {
        let wanted = *b"0123456789abcdef";
        let none = VulkanError::Device {
            wanted,
            found: Vec::new(),
        };
        assert!(
            none.to_string()
                .contains("30313233-3435-3637-3839-616263646566")
        );
        assert!(none.to_string().contains("found: none"));
        let other = VulkanError::Device {
            wanted,
            found: vec![("a CPU".to_owned(), [0xab; 16])],
        };
        assert!(
            other.to_string().contains("a CPU (abababab-abab-"),
            "{other}"
        );
    }
}
