//! CPU-visible memory of GPUs: Vulkan devices map memory that CUDA exports.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMemory, MemoryError};
use causeway_vulkan_import::{Uuid, VulkanDevice};
use parking_lot::Mutex;

type Cause = Box<dyn Error + Send + Sync>;

/// The Vulkan devices of CUDA's GPUs. Each is opened when a guest first needs it, because few
/// guests do.
#[derive(Default)]
pub struct VisibleMemory {
    opened: Mutex<Vec<(Uuid, Arc<VulkanDevice>)>>,
}

impl VisibleMemory {
    /// Imports an allocation of `bytes` bytes that GPU `device` exported, so that CPUs can map it.
    pub fn import(
        &self,
        device: Uuid,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, Cause> {
        let memory: Arc<dyn DeviceMemory> = self.vulkan(device)?.import(file, bytes)?;
        Ok(memory)
    }

    /// Imports an exported allocation for the VMM of a worker process.
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
