//! Maps memory of a GPU for CPUs, by way of Vulkan.
//!
//! CUDA can export an allocation as a file descriptor, but has no call that maps it for a CPU, and
//! NVIDIA's driver refuses `mmap` on it. Vulkan can import the same descriptor ("opaque fd") as
//! memory that is both the device's and visible to the host, and map that. The result is a range of
//! the GPU's BAR 1.
//!
//! Vulkan is loaded at its first use. Nothing here knows CUDA: devices are matched by their UUID.
//!
//! # What the driver is trusted with
//!
//! A descriptor may come from a process that its guest has taken over, so it may be anything. This
//! crate checks what can be checked without the driver: the kind of the descriptor, and, for a
//! memory file, its size and that its owner cannot shorten it later. For a descriptor of NVIDIA's
//! (a character device), only the driver knows whether it is an allocation of *this* device, and
//! how large that is. The driver is trusted to refuse other descriptors, to map no more than the
//! allocation has, and to keep the memory until it is unmapped, whatever the exporter does
//! meanwhile. Mesa's lavapipe, on which the tests run, believes the offset and size in a header of
//! the file: it is for tests, not for guests.

#![allow(unsafe_code, reason = "every function of Vulkan is unsafe to call")]

mod descriptor;
mod device;
mod error;
mod instance;
mod memory;
mod report;

pub use device::VulkanDevice;
pub use error::{ImportError, VulkanError};
pub use instance::is_present;
pub use report::{DeviceReport, VulkanReport, report};

/// Identifies a GPU. CUDA (`cuDeviceGetUuid`) and Vulkan
/// (`VkPhysicalDeviceIDProperties::deviceUUID`) report the same UUID for the same GPU.
pub type Uuid = [u8; 16];
