//! CPU-visible memory of a GPU: which Vulkan device maps what CUDA exports.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_memory::{DeviceMemory, MemoryError};
use causeway_vulkan_import::{Uuid, VulkanDevice};

type Cause = Box<dyn Error + Send + Sync>;

/// Vulkan devices that are the same GPUs as CUDA's. They are opened when they are first needed, because few guests do.
#[derive(Default)]
pub struct VisibleMemory {
    opened: Mutex<Vec<(Uuid, Arc<VulkanDevice>)>>,
}

impl VisibleMemory {
    /// Makes an allocation of `bytes` bytes that was exported from GPU `device` something that CPUs can map.
    pub fn import(
        &self,
        device: Uuid,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, Cause> {
        let memory: Arc<dyn DeviceMemory> = self.vulkan(device)?.import(file, bytes)?;
        Ok(memory)
    }

    /// The same, for a VMM.
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
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let known = opened.iter().find(|(uuid, _)| *uuid == device);
        if let Some((_, vulkan)) = known {
            return Ok(Arc::clone(vulkan));
        }
        let vulkan = VulkanDevice::open(device)?;
        opened.push((device, Arc::clone(&vulkan)));
        Ok(vulkan)
    }
}
