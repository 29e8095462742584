//! Memory of a GPU in the reach of CPUs, by way of Vulkan.
//!
//! CUDA can export an allocation as a file descriptor, but has no call that maps it for a CPU, and
//! NVIDIA's driver refuses `mmap` on it. Vulkan can import the same descriptor ("opaque fd") as
//! memory that is both the device's and visible to the host, and map that: what comes out is a
//! range of the GPU's BAR 1.
//!
//! Vulkan is loaded when it is first asked for. Nothing here knows CUDA: devices are matched by
//! their UUID.
//!
//! # What the driver is trusted with
//!
//! A descriptor may come from a process that its guest has taken over, so it may be anything. What
//! can be checked without the driver is checked: its kind, and, for a memory file, its size and
//! that nobody can cut it short later. Whether a descriptor of NVIDIA's (a character device) is an
//! allocation of *this* device, and how large it is, only the driver knows. It is trusted to refuse
//! others, not to map more than there is, and to keep the memory until it is unmapped, whatever the
//! exporter does meanwhile. Mesa's lavapipe, on which the tests run, believes what a header in the
//! file says of offset and size: it is for tests, not for guests.

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

/// A device's UUID: the same in CUDA (`cuDeviceGetUuid`) and in Vulkan
/// (`VkPhysicalDeviceIDProperties::deviceUUID`).
pub type Uuid = [u8; 16];
