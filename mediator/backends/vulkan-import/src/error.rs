//! The errors of this crate.

use std::io;

use ash::vk;

use crate::Uuid;

/// The reason for which Vulkan cannot make the memory of a device visible to CPUs.
#[derive(Debug, thiserror::Error)]
pub enum VulkanError {
    /// The Vulkan loader is not installed.
    #[error("the Vulkan loader (libvulkan.so.1) is not installed: install libvulkan1")]
    Loader(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The loader is too old for external memory.
    #[error("the Vulkan loader has version {major}.{minor}, and 1.1 is needed: update libvulkan1")]
    Version {
        /// Major number of the loader's version.
        major: u32,
        /// Minor number of the loader's version.
        minor: u32,
    },
    /// Vulkan has no device with the UUID.
    #[error(
        "no Vulkan device has UUID {uuid} (Vulkan has {others}): install the Vulkan driver of the \
         GPU with this UUID",
        uuid = hex(wanted),
        others = names(found)
    )]
    Device {
        /// UUID of the GPU that is wanted.
        wanted: Uuid,
        /// Names and UUIDs of the devices that Vulkan has.
        found: Vec<(String, Uuid)>,
    },
    /// The device cannot import memory by file descriptor.
    #[error(
        "Vulkan device '{device}' cannot import memory: it lacks {missing}; install the GPU \
         vendor's Vulkan driver"
    )]
    Extension {
        /// Name of the device.
        device: String,
        /// The extension or feature that it lacks.
        missing: &'static str,
    },
    /// CPUs cannot map the device's memory.
    #[error(
        "Vulkan device '{device}' has no memory type for imports that is DEVICE_LOCAL, \
         HOST_VISIBLE and HOST_COHERENT, so CPUs cannot map its memory: enable resizable BARs in \
         the host's firmware, or allocate host memory in the guest (`MemoryKind::Host`)"
    )]
    MemoryType {
        /// Name of the device.
        device: String,
    },
    /// A call of Vulkan failed.
    #[error("the Vulkan function {call} failed")]
    Call {
        /// Name of the Vulkan function, such as `vkCreateDevice`.
        call: &'static str,
        /// The result of the call.
        source: vk::Result,
    },
}

/// The reason for which a descriptor is refused as memory of a GPU.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The descriptor is of a kind that cannot be memory.
    #[error(
        "the file descriptor passed as GPU memory refers to a {kind}: pass that of a memory file \
         (memfd) or of memory that the GPU's driver exported"
    )]
    Kind {
        /// Kind of the descriptor, such as "socket".
        kind: &'static str,
    },
    /// The memory file is smaller than the sender of the descriptor states.
    #[error(
        "the file descriptor passed as GPU memory refers to {has} bytes, fewer than the {wanted} \
         bytes that its sender stated"
    )]
    Size {
        /// Size of the file in bytes.
        has: u64,
        /// Size that the sender of the descriptor states, in bytes.
        wanted: u64,
    },
    /// The descriptor is a file that its owner could shorten while it is mapped.
    #[error(
        "the file descriptor passed as GPU memory refers to a file that its owner can shrink: it \
         must be a memory file that allows sealing (memfd_create with MFD_ALLOW_SEALING)"
    )]
    Seal(#[source] io::Error),
    /// The Linux kernel does not tell what the descriptor is.
    #[error("cannot find out what the file descriptor passed as GPU memory refers to")]
    Examine(#[source] io::Error),
    /// The stated size cannot be the size of GPU memory.
    #[error("invalid size of GPU memory, {bytes} bytes: it must be a multiple of 4096, and not 0")]
    Bytes {
        /// Size that the sender of the descriptor states, in bytes.
        bytes: u64,
    },
}

/// Returns `uuid` as text, in the form of NVIDIA's tools: five groups of hexadecimal digits.
pub(crate) fn hex(uuid: &Uuid) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(*uuid));
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|group| &digits[group])
        .join("-")
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
        assert!(none.to_string().contains("Vulkan has none"));
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
