//! CPU-visible memory of GPUs: Vulkan devices map memory that CUDA exports.

use std::error::Error;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError};
use causeway_terminal::{Code, Failure};
use causeway_vulkan_import::{Uuid, VulkanDevice};
use parking_lot::Mutex;

use crate::call_threads::CallThreads;

type Cause = Box<dyn Error + Send + Sync>;

/// Threads that call Vulkan, for all VMs of a run. One whose call does not return is lost to the
/// others.
const THREADS: usize = 4;

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

/// The same in a VMM whose sessions are in worker processes. Its other threads may open no device,
/// so these call Vulkan for them.
pub struct VisibleInVmm {
    memory: Arc<VisibleMemory>,
    threads: Arc<CallThreads<'static>>,
}

impl VisibleInVmm {
    /// Starts the threads, with the rights of this one that `begin` leaves.
    ///
    /// # Errors
    /// A failure with [`Code::Crashed`] if a thread cannot be started, or that of `begin`.
    pub fn start(
        begin: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let started = CallThreads::start("vulkan", THREADS, begin);
        let (threads, begun) = started.map_err(|e| {
            let what = "cannot start the threads that call Vulkan";
            Failure::new(Code::Crashed, what, e)
        })?;
        begun?;
        Ok(Self {
            memory: Arc::default(),
            threads: Arc::new(threads),
        })
    }

    /// Imports an allocation as [`VisibleMemory::import`] does.
    ///
    /// # Errors
    /// [`MemoryError::Device`] with the reason of Vulkan.
    pub fn import(
        &self,
        device: Uuid,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, MemoryError> {
        let memory = Arc::clone(&self.memory);
        let imported = self
            .threads
            .call(move || memory.import(device, file, bytes));
        let memory = imported.map_err(|error| MemoryError::Device {
            bytes,
            reason: error.to_string(),
        })?;
        let threads = Arc::clone(&self.threads);
        Ok(Arc::new(MemoryInVmm { memory, threads }))
    }
}

/// Memory whose driver is called by other threads.
#[derive(Debug)]
struct MemoryInVmm {
    memory: Arc<dyn DeviceMemory>,
    threads: Arc<CallThreads<'static>>,
}

impl DeviceMemory for MemoryInVmm {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        let memory = Arc::clone(&self.memory);
        let mapping = self.threads.call(move || memory.map(offset, bytes))?;
        Ok(Box::new(MappingInVmm {
            mapping: Some(mapping),
            threads: Arc::clone(&self.threads),
        }))
    }
}

/// A mapping that another thread removes.
#[derive(Debug)]
struct MappingInVmm {
    /// `None` only during a drop.
    mapping: Option<Box<dyn DeviceMapping>>,
    threads: Arc<CallThreads<'static>>,
}

impl DeviceMapping for MappingInVmm {
    fn as_ptr(&self) -> NonNull<u8> {
        let mapping = self.mapping.as_ref();
        mapping.expect("it is there until the drop").as_ptr()
    }
}

impl Drop for MappingInVmm {
    fn drop(&mut self) {
        let mapping = self.mapping.take();
        self.threads.call(move || drop(mapping));
    }
}
