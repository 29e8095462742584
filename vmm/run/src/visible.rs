//! CPU-visible memory of GPUs: Vulkan devices map memory that CUDA exports.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMemory, MemoryError};
use causeway_vulkan_import::{Uuid, VulkanDevice};
use parking_lot::Mutex;

type Cause = Box<dyn Error + Send + Sync>;

/// Lets CPUs map memory of CUDA GPUs: CUDA exports the memory, and a Vulkan device of the same GPU
/// imports it. Each Vulkan device is opened when a guest first needs it, because few guests do.
#[derive(Default)]
pub struct VisibleMemory {
    opened: Mutex<Vec<(Uuid, Arc<VulkanDevice>)>>,
}

impl VisibleMemory {
    /// Imports an allocation of GPU memory, so that CPUs can map it. `file` is the descriptor by
    /// which CUDA has exported the allocation, `device` the UUID of the allocation's GPU, `bytes`
    /// the allocation's size.
    ///
    /// # Errors
    /// The error of Vulkan if the device cannot be opened or cannot import the allocation.
    pub fn import(
        &self,
        device: Uuid,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, Cause> {
        let memory: Arc<dyn DeviceMemory> = self.vulkan(device)?.import(file, bytes)?;
        Ok(memory)
    }

    /// Imports an allocation like [`Self::import`], in a VMM whose session is in a worker process.
    /// There, errors must be [`MemoryError`]s.
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
