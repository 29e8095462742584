//! The devices that Vulkan has, for `causeway doctor`.

use std::sync::Arc;

use crate::instance::Vulkan;
use crate::{Uuid, VulkanDevice, VulkanError};

/// The physical devices that Vulkan has, as `causeway doctor` reports them.
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
    /// Its UUID, which CUDA uses, too.
    pub uuid: Uuid,
    /// Bytes of imported memory that CPUs can map at a time, or why CPUs can map none.
    pub visible_bytes: Result<u64, VulkanError>,
}

/// Tries on every device whether its memory can be made visible to CPUs. Takes some 100 ms.
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
