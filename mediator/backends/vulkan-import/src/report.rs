//! Lists the devices that Vulkan has, for `causeway doctor`.

use std::sync::Arc;

use crate::instance::Vulkan;
use crate::{Uuid, VulkanDevice, VulkanError};

/// The physical devices that the Vulkan loader finds, as `causeway doctor` reports them.
#[derive(Debug)]
pub struct VulkanReport {
    /// One report for each device, in the order in which the Vulkan loader lists the devices.
    pub devices: Vec<DeviceReport>,
}

/// What [`report`] found out about one physical device.
#[derive(Debug)]
pub struct DeviceReport {
    /// Name of the device, as Vulkan reports it.
    pub name: String,
    /// UUID of the device. CUDA reports the same UUID for the same GPU.
    pub uuid: Uuid,
    /// Size, in bytes, of the device memory that CPUs can map, or the error that explains why they
    /// can map none.
    pub visible_bytes: Result<u64, VulkanError>,
}

/// Opens every device that the Vulkan loader finds, and checks whether CPUs can map its memory.
/// Takes about 100 ms for each device.
///
/// # Errors
/// * [`VulkanError::Loader`], [`VulkanError::Version`]: the Vulkan loader is missing or too old.
/// * [`VulkanError::Call`]: the loader fails to list its devices.
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
