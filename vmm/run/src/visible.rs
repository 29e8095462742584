//! CPU-visible memory of GPUs: Vulkan devices map memory that CUDA exports.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMemory, MemoryError};
use causeway_vulkan_import::{Uuid, VulkanDevice};
use parking_lot::Mutex;

type Cause = Box<dyn Error + Send + Sync>;

/// Makes memory of CUDA GPUs mappable for CPUs, by Vulkan devices of the same GPUs. Each Vulkan
/// device is opened when a guest first needs it, because few guests do.
#[derive(Default)]
pub struct VisibleMemory {
    opened: Mutex<Vec<(Uuid, Arc<VulkanDevice>)>>,
}

impl VisibleMemory {
    /// Imports an allocation that CUDA has exported as `file`, so that CPUs can map it. `device` is
    /// the UUID of its GPU, `bytes` its size.
    ///
    /// # Errors
    /// The error of Vulkan if the device cannot be opened or refuses the file.
    pub fn import(
        &self,
        device: Uuid,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, Cause> {
        let memory: Arc<dyn DeviceMemory> = self.vulkan(device)?.import(file, bytes)?;
        Ok(memory)
    }

    /// Does the same as [`Self::import`] in the VMM of a worker process, which needs the error as a
    /// [`MemoryError`].
    ///
    /// # Errors
    /// [`MemoryError::Device`] with the reason of Vulkan.
    pub fn import_for_vmm(
        &self,
        device: Uuid,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, MemoryError> {
        self.import(device, file, bytes)
            .map_err(|error| MemoryError::Device {
                bytes,
                reason: error.to_string(),
            })
    }

    fn vulkan(&self, device: Uuid) -> Result<Arc<VulkanDevice>, Cause> {
        let mut opened = self.opened.lock();
        let known = opened.iter().find(|(uuid, _)| *uuid == device);
        if let Some((_, vulkan)) = known {
            return Ok(Arc::clone(vulkan));
        }
        let vulkan = VulkanDevice::open(device)?;
        opened.push((device, Arc::clone(&vulkan)));
        Ok(vulkan)
    }
}
