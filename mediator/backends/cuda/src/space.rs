//! Address spaces: the mappings of a guest, in which its kernels and queues work.

pub(crate) mod deferred;
pub(crate) mod lookup;
pub(crate) mod mapping;
mod reader;
pub(crate) mod state;
mod table;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_mediator::backend::{
    Array, ArrayCharge, ArrayShape, BackendError, Memory, Module, ModuleError, Queue, Recorded,
    Recording, Reservation, Sampling, Space, TensorMapAnswer, Texture, TextureSource,
};
use causeway_protocol::Access;
use causeway_protocol::message::{EncodeTensorMap, Status, TENSOR_RANK_MAX, TensorMapKind};

use crate::array::{self, CudaArray};
use crate::driver::encode_tensor_map;
use crate::error::{failed, refused};
use crate::gpu::Gpu;
use crate::module;
use crate::queue::CudaQueue;
use crate::recording;
use crate::texture::CudaTexture;
use mapping::Mapping;
use state::SpaceState;

/// How long a submission may take the driver before a thread that unmaps device memory goes on
/// without it.
const SUBMISSION_PATIENCE: Duration = Duration::from_millis(100);
/// Most mappings and textures that stay for work under way after the guest has ended them: its
/// quota counts them no more.
const DEFERRED_MAX: usize = 4096;

/// An address space of a session, as the mediator uses it.
pub(crate) struct CudaSpace {
    state: Arc<SpaceState>,
}

impl CudaSpace {
    /// Returns an empty address space on `gpu`. `stop` is set when the session ends.
    ///
    /// # Errors
    /// `DeviceLost` if an error has poisoned the process; the status of the driver's error if it
    /// cannot create a context.
    pub(crate) fn new(gpu: &Arc<Gpu>, stop: Arc<AtomicBool>) -> Result<Self, BackendError> {
        let state = SpaceState::new(gpu, stop)?;
        state.check_poison()?;
        Ok(Self {
            state: Arc::new(state),
        })
    }
}

/// Refuses what would be one object too many that stays for work under way.
fn check_deferred(state: &SpaceState, what: &str) -> Result<(), BackendError> {
    if state.deferred.count() < DEFERRED_MAX {
        return Ok(());
    }
    let text = format!("{what} while work under way holds thousands of former mappings");
    Err(refused(Status::NoMemory, text))
}

fn no_mapping(va: u64) -> BackendError {
    refused(Status::BackEnd, format!("no mapping begins at {va:#x}"))
}

impl Space for CudaSpace {
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        self.state.check_poison()?;
        check_deferred(&self.state, "map memory")?;
        let SpaceState { gpu, table, .. } = &*self.state;
        let is_free = |va| table.is_free(va, bytes);
        let range = (offset, bytes);
        let (va, mapping) = Mapping::new(gpu, is_free, wanted, memory, range, access)?;
        table.insert(va, bytes, access, mapping)?;
        Ok(va)
    }

    /// Memory of the device is unmapped at once and may then be reused; work under way that still
    /// uses it faults. The exception is a queue that stays in the middle of a submission, as it
    /// does when the driver waits for the GPU: it may rely on addresses that it has looked up, so
    /// the memory stays mapped until that work is done. Host memory, and memory that only copies
    /// reach, always stays mapped for as long as work under way might use it.
    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        let state = &self.state;
        let mapping = state.table.remove(va).ok_or_else(|| no_mapping(va))?;
        // At the end of a session nothing is waited for: the memory goes when the work has ended.
        let patience = match state.stop.load(Ordering::SeqCst) {
            true => Duration::ZERO,
            false => SUBMISSION_PATIENCE,
        };
        let unmapped = mapping.goes_at_once() && state.deferred.await_submissions(patience);
        if unmapped {
            mapping.unmap_device();
        } else {
            state.deferred.defer(Box::new(mapping));
        }
        Ok(())
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        self.state.check_poison()?;
        let table = &self.state.table;
        let mapping = table.mapping(va).ok_or_else(|| no_mapping(va))?;
        let before = table.span(va).map_or(Access::None, |span| span.access);
        // If rights are lost, the table changes first, so that a copy is refused before the GPU
        // would fault.
        let loses = !access.allows(before);
        if loses {
            table.set_access(va, access);
        }
        let changed = mapping.set_access(access);
        let now = if changed.is_ok() { access } else { before };
        table.set_access(va, now);
        changed
    }

    fn load_module(
        &self,
        image: &[u8],
        reservation: &mut Reservation,
    ) -> Result<Arc<dyn Module>, ModuleError> {
        Ok(Arc::new(module::load(&self.state, image, reservation)?))
    }

    fn create_queue(&self, priority: i32) -> Result<Box<dyn Queue>, BackendError> {
        self.state.check_poison()?;
        if self.state.stop.load(Ordering::SeqCst) {
            return Err(refused(Status::DeviceLost, "the session has ended"));
        }
        Ok(Box::new(CudaQueue::new(&self.state, priority)?))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        self.state.check_poison()?;
        Ok(Arc::new(recording::record(&self.state, work)?))
    }

    /// A process keeps a mebibyte of text for all its address spaces.
    fn take_output(&self, bytes: usize) -> Vec<u8> {
        self.state.take_output(bytes)
    }

    /// What is not mapped now is refused: the description could not be used.
    fn encode_tensor_map(
        &self,
        request: &EncodeTensorMap,
    ) -> Result<TensorMapAnswer, BackendError> {
        self.state.check_poison()?;
        let SpaceState { table, maker, .. } = &*self.state;
        let what = || format!("describe a tensor at {:#x}", request.address);
        let kind = TensorMapKind::from_wire(request.kind);
        let kind = kind.ok_or_else(|| refused(Status::BadRange, what()))?;
        if request.rank > TENSOR_RANK_MAX as u32 {
            return Err(refused(Status::BadRange, what()));
        }
        if request.address != 0 && table.find_readable(request.address, 1).is_none() {
            return Err(refused(Status::MemoryFault, what()));
        }
        encode_tensor_map(&maker.context, kind, request).map_err(|e| failed(what(), e))
    }

    fn array_bytes(&self, shape: &ArrayShape) -> u64 {
        array::memory_bytes(shape)
    }

    fn reclaim_arrays(&self) {
        self.state.idle.drain();
    }

    fn create_array(
        &self,
        shape: &ArrayShape,
        charge: ArrayCharge,
    ) -> Result<Arc<dyn Array>, BackendError> {
        self.state.check_poison()?;
        Ok(Arc::new(CudaArray::create(&self.state, shape, charge)?))
    }

    fn create_texture(
        &self,
        source: TextureSource<'_>,
        sampling: &Sampling,
    ) -> Result<Box<dyn Texture>, BackendError> {
        self.state.check_poison()?;
        check_deferred(&self.state, "make a texture")?;
        Ok(Box::new(CudaTexture::create(
            &self.state,
            source,
            sampling,
        )?))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        let (mapping, offset) = self.state.table.find_readable(va, 8)?;
        mapping.load_u64(offset)
    }

    fn fetch_u64(&self, va: u64, gives_up: &dyn Fn() -> bool) -> Option<u64> {
        let (mapping, offset) = self.state.table.find_readable(va, 8)?;
        mapping
            .load_u64(offset)
            .or_else(|| self.state.copy_word(va, gives_up))
    }
}
