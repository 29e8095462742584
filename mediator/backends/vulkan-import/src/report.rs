//! What there is, for whoever wants to know before guests do.

use std::sync::Arc;

use crate::instance::Vulkan;
use crate::{Uuid, VulkanDevice, VulkanError};

/// The physical devices that Vulkan knows.
#[derive(Debug)]
pub struct VulkanReport {
    /// In the loader's order.
    pub devices: Vec<DeviceReport>,
}

/// One physical device.
#[derive(Debug)]
pub struct DeviceReport {
    /// Its name, for people.
    pub name: String,
    /// Its UUID, by which CUDA knows it, too.
    pub uuid: Uuid,
    /// Bytes of its memory that CPUs can see when they are imported, or why none.
    pub visible_bytes: Result<u64, VulkanError>,
}

/// Finds out, by trying, which devices could show guests their memory. Takes some 100 ms.
///
/// # Errors
/// [`VulkanError`]: no loader, or one that is too old.
pub fn report() -> Result<VulkanReport, VulkanError> {
    let vulkan = Arc::new(Vulkan::load()?);
    let physical = vulkan.devices()?;
    let of_one = |device: crate::instance::Physical| DeviceReport {
        visible_bytes: VulkanDevice::of(&vulkan, &device).map(|opened| opened.visible_bytes()),
        name: device.name,
        uuid: device.uuid,
    };
    Ok(VulkanReport {
        devices: physical.into_iter().map(of_one).collect(),
    })
}
