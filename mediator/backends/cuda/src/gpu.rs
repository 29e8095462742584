//! What all address spaces share: the GPU, its primary context, memory that is kept for reuse.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use causeway_mediator::backend::BackendError;
use causeway_memory::DeviceMemory;
use causeway_protocol::message::Status;

use crate::addresses::Addresses;
use crate::config::Config;
use crate::device_memory::Chunk;
use crate::driver::{Context, CudaError, Device, GreenContext, Stream, StreamMaker};
use crate::error::refused;
use crate::gate::Gate;
use crate::guest_ram::GuestRams;
use crate::host_memory::HostChunk;
use crate::host_registration::Registrar;
use crate::idle::Idle;
use crate::others::Others;
use crate::output::Output;
use crate::pool::Pool;
use crate::repeats::Repeats;
use crate::support::Support;
use crate::words::Words;

/// State of the GPU that all address spaces share. Fields are dropped in this order: what uses
/// memory before the addresses and contexts in which that memory is mapped.
pub(crate) struct Gpu {
    /// Freed device memory, kept for reuse.
    pub(crate) chunks: Pool<Chunk>,
    /// Freed host memory, kept for reuse.
    pub(crate) host_chunks: Pool<HostChunk>,
    /// The guests' RAM that is registered with the GPU.
    pub(crate) rams: GuestRams,
    /// Host memory that is registered once more.
    pub(crate) repeats: Repeats,
    /// The stream that fills freed memory with zeros.
    pub(crate) scrubber: Stream,
    /// The gate that queues pass before they submit work, so that scrubbing has its turn.
    pub(crate) gate: Arc<Gate>,
    /// GPU addresses at which device memory is mapped for scrubbing.
    pub(crate) aliases: Arc<Addresses>,
    /// GPU addresses at which device memory is mapped for guests. All address spaces share them,
    /// because all contexts of a process share the addresses of a device.
    pub(crate) addresses: Arc<Addresses>,
    /// The green context of the multiprocessors that guests have; `None` if they have all.
    pub(crate) green: Option<Arc<GreenContext>>,
    /// The back end's own small kernels, loaded in the primary context.
    pub(crate) words: Arc<Words>,
    /// The queues of the primary context, and what is dropped when they have no work.
    pub(crate) idle: Arc<Idle>,
    /// The primary context, in which the back end's own work is done.
    pub(crate) home: Arc<Context>,
    pub(crate) device: Device,
    /// The other GPUs of the run.
    pub(crate) others: Others,
    pub(crate) support: Support,
    /// The configuration with which the GPU was opened.
    pub(crate) config: Config,
    /// Sizes of allocations are multiples of this number of bytes.
    pub(crate) granularity_bytes: u64,
    /// What kernels print; `None` if the process has another standard output to keep.
    pub(crate) output: Option<Arc<Output>>,
    /// Most memory that guests may allocate, in bytes.
    pub(crate) memory_bytes: u64,
    /// Memory that was created and not yet released, in bytes: allocated, or kept for reuse.
    pub(crate) taken_bytes: Arc<AtomicU64>,
    /// Number of multiprocessors that guests have.
    pub(crate) multiprocessors: u32,
    /// The most urgent priority of a stream: a negative number, or 0 without priorities.
    pub(crate) greatest_priority: i32,
}

impl Gpu {
    /// Returns the maker of the streams of a new address space; creates a context if each address
    /// space has its own.
    pub(crate) fn maker(&self) -> Result<StreamMaker, CudaError> {
        let own = self.config.context_per_space && self.green.is_none();
        Ok(StreamMaker {
            context: if own {
                Context::create(self.device)?
            } else {
                Arc::clone(&self.home)
            },
            green: self.green.clone(),
        })
    }

    /// Returns the back end's own small kernels in `context`, which is the primary context or one
    /// that has been created for an address space.
    pub(crate) fn words(&self, context: &Arc<Context>) -> Result<Arc<Words>, CudaError> {
        if Arc::ptr_eq(context, &self.home) {
            return Ok(Arc::clone(&self.words));
        }
        Words::load(context).map(Arc::new)
    }

    /// Returns the queues of `context`, which is the primary context or one that has been created
    /// for an address space.
    pub(crate) fn idle(&self, context: &Arc<Context>) -> Arc<Idle> {
        match Arc::ptr_eq(context, &self.home) {
            true => Arc::clone(&self.idle),
            false => Idle::new(context),
        }
    }

    /// Returns what registers memory once more.
    pub(crate) fn registrar(&self) -> Registrar<'_> {
        Registrar {
            context: &self.home,
            support: &self.support,
            repeats: &self.repeats,
        }
    }

    /// Makes `bytes` bytes of device memory, exported as the descriptor `file`, visible to CPUs.
    pub(crate) fn show(
        &self,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, BackendError> {
        let Some(visible) = &self.config.visible else {
            let text = "GPU memory cannot be made visible to CPUs without Vulkan: \
                        install the GPU's Vulkan driver";
            return Err(refused(Status::Unsupported, text));
        };
        let what = || format!("make {bytes} bytes of GPU memory visible to CPUs");
        visible(file, bytes)
            .map_err(|source| BackendError::new(Status::Unsupported, what()).because(source))
    }
}
