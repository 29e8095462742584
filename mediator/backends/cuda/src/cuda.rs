//! The back end: implements the mediator's [`Backend`] with a CUDA GPU.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, DeviceFacts, Exported, FabricBytes, Memory,
    Space,
};
use causeway_memory::SharedMemory;
use causeway_protocol::message::MemoryKind;

use crate::config::{Config, OpenError};
use crate::device_memory::GpuMemory;
use crate::facts;
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;
use crate::host_registration::check_support;
use crate::open;
use crate::space::CudaSpace;

/// How long kernels of a client that has ended may go on, with the quarter of a second that a queue
/// waits before it gives up: two seconds, as a kernel of a second is nothing unusual.
const GRACE: Duration = Duration::from_millis(1750);

/// The CUDA back end on one NVIDIA GPU, or on the part of it that [`Config`] describes.
pub struct Cuda {
    attributes: Attributes,
    gpu: Arc<Gpu>,
}

causeway_memory::debug_fields!(Cuda { attributes });

impl Cuda {
    /// Opens the GPU that `config` describes.
    ///
    /// # Errors
    /// * [`OpenError::Load`]: there is no CUDA driver, or it is too old.
    /// * [`OpenError::Index`]: the driver has no GPU with the configured number.
    /// * [`OpenError::Attribute`]: the GPU lacks an attribute that the back end needs.
    /// * [`OpenError::Memory`], [`OpenError::Multiprocessors`], [`OpenError::Group`]: the GPU has
    ///   less than the configuration asks for.
    /// * [`OpenError::Fabric`]: the driver gives memory of the GPU no fabric handles.
    /// * [`OpenError::Driver`]: a call of the driver failed for another reason.
    pub fn open(config: &Config) -> Result<Arc<Self>, OpenError> {
        let (gpu, attributes) = open::open(config)?;
        Ok(Arc::new(Self { attributes, gpu }))
    }

    /// Returns the UUID of the GPU. Vulkan reports the same UUID for the same GPU.
    ///
    /// # Errors
    /// The driver's error if it does not report the UUID.
    pub fn uuid(&self) -> Result<[u8; 16], crate::CudaError> {
        self.gpu.device.uuid()
    }
}

impl Backend for Cuda {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn device_facts(&self) -> DeviceFacts {
        facts::of(&self.gpu, &self.attributes)
    }

    fn greatest_priority(&self) -> i32 {
        self.gpu.greatest_priority
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

    fn import_fabric(
        &self,
        handle: &FabricBytes,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = GpuMemory::import_fabric(&self.gpu, handle, bytes)?;
        Ok(Arc::new(memory))
    }

    fn find_fabric(&self, handle: &FabricBytes) -> Result<(), BackendError> {
        GpuMemory::find_fabric(&self.gpu, handle)
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        check_support(&self.gpu.support)?;
        let view = self
            .gpu
            .rams
            .view(self.gpu.registrar(), &ram, offset, bytes)?;
        let (range, view) = ((offset, bytes), Some(view));
        Ok(Arc::new(HostMemory::new(&self.gpu, ram, range, view)))
    }

    fn is_poisoned(&self) -> bool {
        self.gpu.home.is_poisoned()
    }

    fn grace(&self) -> Duration {
        GRACE
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        Ok(Arc::new(CudaSpace::new(&self.gpu, stop)?))
    }
}
