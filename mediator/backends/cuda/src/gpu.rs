//! What all address spaces share: the GPU, its home context, memory that is kept for reuse.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use causeway_mediator::backend::BackendError;
use causeway_memory::{DeviceMemory, PageSize};
use causeway_protocol::message::Status;

use crate::addresses::Addresses;
use crate::config::Visible;
use crate::device_memory::Chunk;
use crate::driver::{Context, CudaError, Device, GreenContext, Stream, StreamMaker};
use crate::error::refused;
use crate::gate::Gate;
use crate::guest_ram::GuestRams;
use crate::host_memory::HostChunk;
use crate::pool::Pool;
use crate::support::Support;

/// The GPU. Fields are dropped in this order: what uses memory before what it is placed in.
pub(crate) struct Gpu {
    /// Freed device memory.
    pub(crate) chunks: Pool<Chunk>,
    /// Freed host memory.
    pub(crate) host_chunks: Pool<HostChunk>,
    /// Page size of host memory.
    pub(crate) host_pages: PageSize,
    /// Guest RAM.
    pub(crate) rams: GuestRams,
    /// Fills freed memory with zeros.
    pub(crate) scrubber: Stream,
    /// What queues pass, so that scrubbing has its turn.
    pub(crate) gate: Arc<Gate>,
    /// Where device memory is mapped for scrubbing.
    pub(crate) aliases: Arc<Addresses>,
    /// Where device memory is mapped for guests. All address spaces share it, because all contexts
    /// of a process share the addresses of a device.
    pub(crate) addresses: Arc<Addresses>,
    /// The multiprocessors that guests have, if not all.
    pub(crate) green: Option<Arc<GreenContext>>,
    /// The primary context, for work of the back end itself.
    pub(crate) home: Arc<Context>,
    pub(crate) device: Device,
    pub(crate) support: Support,
    pub(crate) visible: Option<Visible>,
    /// Sizes of allocations are multiples of it.
    pub(crate) granularity_bytes: u64,
    /// Memory to give out, in bytes.
    pub(crate) memory_bytes: u64,
    /// Memory that was created and not let go of, in bytes: allocated, or kept for reuse.
    pub(crate) taken_bytes: Arc<AtomicU64>,
    /// Multiprocessors that guests have.
    pub(crate) multiprocessors: u32,
    pub(crate) context_per_space: bool,
    pub(crate) single_launches: bool,
}

impl Gpu {
    /// What streams of a new address space are made in.
    pub(crate) fn maker(&self) -> Result<StreamMaker, CudaError> {
        let own = self.context_per_space && self.green.is_none();
        Ok(StreamMaker {
            context: if own {
                Context::create(self.device)?
            } else {
                Arc::clone(&self.home)
            },
            green: self.green.clone(),
        })
    }

    /// Makes `bytes` bytes of device memory behind `file` visible to CPUs.
    pub(crate) fn show(
        &self,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, BackendError> {
        let Some(visible) = &self.visible else {
            let text = "device memory is not visible to CPUs: install the GPU's Vulkan driver";
            return Err(refused(Status::Unsupported, text));
        };
        let what = || format!("show {bytes} bytes of GPU memory to CPUs");
        visible(file, bytes)
            .map_err(|source| BackendError::new(Status::Unsupported, what()).because(source))
    }
}
