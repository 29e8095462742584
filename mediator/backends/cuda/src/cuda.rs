//! The back end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Memory, Space,
};
use causeway_memory::SharedMemory;
use causeway_protocol::message::MemoryKind;

use crate::config::{Config, OpenError};
use crate::device_memory::GpuMemory;
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;
use crate::open;
use crate::space::CudaSpace;
use crate::support::Support;

/// How long kernels of a client that is gone may go on, with the quarter of a second that a queue waits before it gives
/// up: two seconds, as a kernel of a second is nothing unusual.
const GRACE: Duration = Duration::from_millis(1750);

/// A GPU of NVIDIA's, or the part of one that [`Config`] describes.
pub struct Cuda {
    attributes: Attributes,
    gpu: Arc<Gpu>,
}

impl Cuda {
    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: &Config) -> Result<Arc<Self>, OpenError> {
        let (gpu, attributes) = open::open(config)?;
        Ok(Arc::new(Self { attributes, gpu }))
    }

    /// What the driver says that the GPU can do.
    pub fn support(&self) -> &Support {
        &self.gpu.support
    }

    /// What identifies the GPU to other interfaces, such as Vulkan.
    ///
    /// # Errors
    /// What the driver said.
    pub fn uuid(&self) -> Result<[u8; 16], crate::CudaError> {
        self.gpu.device.uuid()
    }

    /// Why this process must be ended before another session can use the GPU, if it must: a fault after which the driver
    /// refuses everything, or work that does not end.
    pub fn spoiled(&self) -> Option<String> {
        let home = &self.gpu.home;
        match home.driver().poison() {
            Some(error) => Some(error.to_string()),
            None => home
                .is_lost()
                .then(|| String::from("a kernel did not end with its session")),
        }
    }

    /// Free memory of the whole GPU in bytes, whoever uses the rest.
    ///
    /// # Errors
    /// What the driver said.
    pub fn free_bytes(&self) -> Result<u64, crate::CudaError> {
        self.gpu.home.free_bytes()
    }

    /// Lets go of freed memory that is kept for reuse.
    pub fn release_kept(&self) {
        self.gpu.chunks.purge();
        self.gpu.host_chunks.purge();
    }
}

impl Backend for Cuda {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(match kind {
            MemoryKind::Host => Arc::new(HostMemory::allocate(&self.gpu, bytes)?),
            MemoryKind::Device | MemoryKind::DeviceVisible => {
                Arc::new(GpuMemory::allocate(&self.gpu, kind, bytes, options)?)
            }
        })
    }

    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(match exported.kind {
            MemoryKind::Host => Arc::new(HostMemory::import(&self.gpu, exported)?),
            MemoryKind::Device | MemoryKind::DeviceVisible => {
                Arc::new(GpuMemory::import(&self.gpu, &exported)?)
            }
        })
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let view = self.gpu.rams.view(&self.gpu, &ram, offset, bytes)?;
        let range = (offset, bytes);
        Ok(Arc::new(HostMemory::guest_ram(&self.gpu, ram, range, view)))
    }

    fn is_poisoned(&self) -> bool {
        self.spoiled().is_some()
    }

    fn grace(&self) -> Duration {
        GRACE
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        Ok(Arc::new(CudaSpace::new(&self.gpu, stop)?))
    }
}
