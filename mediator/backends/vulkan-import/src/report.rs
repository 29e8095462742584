//! Lists the devices that Vulkan has, for `causeway doctor`.

use std::sync::Arc;

use crate::instance::Vulkan;
use crate::{Uuid, VulkanDevice, VulkanError};

/// The physical devices that Vulkan has, as `causeway doctor` reports them.
#[derive(Debug)]
pub struct VulkanReport {
    /// Reports about the devices, in the order of the Vulkan loader.
    pub devices: Vec<DeviceReport>,
}

/// What [`report`] found out about one physical device.
#[derive(Debug)]
pub struct DeviceReport {
    /// Name of the device, as Vulkan reports it.
    pub name: String,
    /// UUID of the device. CUDA reports the same UUID for the same GPU.
    pub uuid: Uuid,
    /// Size, in bytes, of the device's memory that CPUs can map, or the reason why they can map
    /// none.
    pub visible_bytes: Result<u64, VulkanError>,
}

/// Opens every device that Vulkan has, to find out whether CPUs can map its memory. Takes about
/// 100 ms for each device.
///
/// # Errors
/// * [`VulkanError::Loader`], [`VulkanError::Version`]: the Vulkan loader is missing or too old.
/// * [`VulkanError::Call`]: the loader does not list its devices.
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
