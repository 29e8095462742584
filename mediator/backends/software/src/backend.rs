//! The back end: allocations, cores that run kernels, address spaces.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::{HostHandle, HostMemory};
use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, DeviceFacts, Exported, Memory, Place, Space,
};
use causeway_memory::{Mapping, PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::registers::features;

use crate::address;
use crate::compile;
use crate::counts::{Counts, LaunchCount};
use crate::device::Device;
use crate::facts;
use crate::isa::Isa;
use crate::limits::{BLOCK_THREADS_MAX, SHARED_BYTES_MAX};
use crate::module;
use crate::pool::Pool;
use crate::registers::WARP;
use crate::space::SoftwareSpace;
use crate::workers::Workers;

/// What the software back end presents as its device, and how much of the host it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Memory of the device in bytes. All allocations and modules together take no more.
    pub memory_bytes: u64,
    /// Number of CPU cores that execute kernels, at least 1. `None` stands for all cores that this
    /// process may use.
    pub cores: Option<usize>,
    /// Number of the device, from 0: tells devices of one host from each other.
    pub device: u32,
    /// What executes kernels.
    pub engine: Engine,
    /// Size of the pages in which allocations get their memory. Small pages are for hosts that pass
    /// descriptors of allocations to processes they do not trust.
    pub host_pages: PageSize,
}

/// What executes kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The interpreter alone.
    #[default]
    Interpreter,
    /// Machine code for runs of operations that only compute, and the interpreter for all else.
    Compiled,
}

/// The software back end: a device whose memory is host memory and whose kernels run on CPU cores.
#[derive(Debug)]
pub struct Software {
    attributes: Attributes,
    number: u32,
    device: Arc<Device>,
    host_pages: PageSize,
}

impl Software {
    /// Creates the device and starts its threads. There is one thread fewer than cores, because the
    /// thread that submits a launch executes blocks of it too.
    pub fn new(config: Config) -> Self {
        let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let cores = config.cores.unwrap_or_else(all_cores).max(1);
        let isa = Isa::detect();
        let compiles = config.engine == Engine::Compiled && compile::is_possible(isa);
        if compiles != (config.engine == Engine::Compiled) {
            log::warn!(
                "engine=compiled needs a processor with AVX2 and FMA (x86-64-v3): kernels are \
                 interpreted"
            );
        }
        let how = match compiles {
            true => ", compiled",
            false => "",
        };
        let attributes = Attributes {
            name: match config.device {
                0 => format!("software, {cores} cores, {}{how}", isa.name()),
                number => format!("software {number}, {cores} cores, {}{how}", isa.name()),
            },
            memory_bytes: config.memory_bytes,
            granularity_bytes: PAGE_BYTES,
            va: address::MAPPINGS,
            compute_units: u32::try_from(cores).unwrap_or(u32::MAX),
            warp_threads: WARP as u32,
            block_threads_max: BLOCK_THREADS_MAX,
            shared_bytes_max: SHARED_BYTES_MAX,
            features: features::KERNELS
                | features::GUEST_RAM
                | features::SHARING
                | features::RECORDING
                | features::DEVICE_VISIBLE
                | features::ARRAYS,
        };
        let device = Device {
            pool: Pool::new(config.memory_bytes),
            workers: Workers::start(cores - 1),
            counts: Counts::default(),
            isa,
            compiles: AtomicBool::new(compiles),
        };
        Self {
            attributes,
            number: config.device,
            device: Arc::new(device),
            host_pages: config.host_pages,
        }
    }

    /// Returns how often each kernel was launched, how many instructions it executed, and for how
    /// long; sorted by the names of the kernels.
    pub fn launch_counts(&self) -> Vec<LaunchCount> {
        self.device.counts.all()
    }

    /// Creates an address space, for programs that use the engine without a mediator. Once `stop`
    /// is set, kernels in the address space end early.
    pub fn space(&self, stop: Arc<AtomicBool>) -> SoftwareSpace {
        SoftwareSpace::new(Arc::clone(&self.device), stop)
    }

    /// Makes memory that this process has already mapped available to address spaces of this back
    /// end. `owner` must keep `mapping` valid, and is dropped with the memory. The memory does not
    /// count towards [`Config::memory_bytes`].
    pub fn wrap(mapping: Mapping, owner: Box<dyn Any + Send + Sync>) -> Arc<dyn Memory> {
        HostHandle::share(HostMemory::over(mapping, owner), Place::Own)
    }

    /// Returns what all address spaces of this back end share.
    #[cfg(test)]
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns how many bytes of the device's memory no allocation and no module has taken.
    pub fn free_bytes(&self) -> u64 {
        self.device.pool.free()
    }
}

impl Backend for Software {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn device_facts(&self) -> DeviceFacts {
        facts::of(self.number, &self.attributes)
    }

    fn shares_time(&self) -> bool {
        true
    }

    /// Every kind of memory is the host's memory here.
    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        _options: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let free = self.device.pool.free();
        let charge = self.device.pool.charge(bytes).ok_or_else(|| {
            BackendError::new(
                Status::NoMemory,
                format!("allocate {bytes} bytes: the device has {free} bytes left"),
            )
        })?;
        let memory = HostMemory::allocate(bytes, self.host_pages).map_err(|e| {
            BackendError::new(Status::NoMemory, format!("allocate {bytes} bytes")).because(e)
        })?;
        let place = match kind {
            MemoryKind::Host => Place::Host,
            MemoryKind::Device | MemoryKind::DeviceVisible => Place::Own,
        };
        Ok(HostHandle::share(memory.charged(charge), place))
    }

    /// The memory counts as the exporter's, not as the device's.
    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        HostHandle::import(exported)
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        HostHandle::register(ram, offset, bytes)
    }

    fn load_bytes(&self, image_bytes: u64) -> u64 {
        module::load_bytes(image_bytes)
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        Ok(Arc::new(self.space(stop)))
    }
}
