//! Address spaces: what is mapped where for a guest's kernels and queues.

mod lookup;
mod mapping;
mod retire;
mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_mediator::backend::{
    BackendError, Memory, Module, ModuleError, Queue, Recorded, Recording, Space,
};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

pub(crate) use lookup::{Lookup, Standing, Use};
pub(crate) use retire::{Progress, Retired};
pub(crate) use table::Table;

use crate::driver::StreamMaker;
use crate::error::{failed, refused};
use crate::gpu::Gpu;
use crate::module;
use crate::queue::CudaQueue;
use crate::recording;
use crate::words::Words;
use mapping::Mapped;

/// How long a submission may take the driver before whoever unmaps device memory goes on without it.
const SUBMISSION_PATIENCE: Duration = Duration::from_millis(100);

/// What queues, modules and recordings share with their address space.
pub(crate) struct SpaceState {
    pub(crate) gpu: Arc<Gpu>,
    /// Set when the session ends.
    pub(crate) stop: Arc<AtomicBool>,
    /// What streams are made in.
    pub(crate) maker: StreamMaker,
    pub(crate) table: Table,
    pub(crate) retired: Retired,
    /// Small kernels of the back end's own.
    words: OnceLock<Words>,
}

impl SpaceState {
    /// The back end's own kernels, loaded at their first use.
    pub(crate) fn words(&self) -> Result<&Words, BackendError> {
        if let Some(words) = self.words.get() {
            return Ok(words);
        }
        let words = Words::load(&self.maker.context)?;
        Ok(self.words.get_or_init(|| words))
    }

    /// Says that work is under way that does not end.
    pub(crate) fn abandon(&self) {
        self.maker.context.abandon();
        // Its drops would wait for the same GPU.
        self.gpu.home.abandon();
    }

    /// Refuses to go on once an error has spoiled the process.
    pub(crate) fn check_alive(&self) -> Result<(), BackendError> {
        match self.maker.context.driver().poison() {
            None => Ok(()),
            Some(error) => Err(failed("the process must be restarted", error.clone())),
        }
    }
}

impl Drop for SpaceState {
    fn drop(&mut self) {
        // Queues hold this, so all have finished or been abandoned.
        if self.maker.context.is_lost() {
            self.table.leak();
            self.retired.leak();
        }
        self.gpu.rams.forget_ended();
    }
}

/// An address space of a session.
pub(crate) struct CudaSpace {
    state: Arc<SpaceState>,
}

impl CudaSpace {
    /// An empty address space.
    pub(crate) fn new(gpu: &Arc<Gpu>, stop: Arc<AtomicBool>) -> Result<Self, BackendError> {
        let maker = gpu
            .maker()
            .map_err(|e| failed("create a context for an address space", e))?;
        let state = SpaceState {
            gpu: Arc::clone(gpu),
            stop,
            maker,
            table: Table::default(),
            retired: Retired::default(),
            words: OnceLock::new(),
        };
        state.check_alive()?;
        Ok(Self {
            state: Arc::new(state),
        })
    }
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
        self.state.check_alive()?;
        let range = (offset, bytes);
        let (va, mapped) = Mapped::new(&self.state, wanted, memory, range, access)?;
        self.state.table.insert(va, bytes, access, mapped)?;
        Ok(va)
    }

    /// Memory of the device is unmapped at once, so that work under way which still uses it faults, and is anybody's
    /// then. Only if a queue is in the middle of a submission, which may rely on what it looked up, and stays there (a
    /// driver whose queue is full waits for the GPU), the memory waits for that work. Host memory always does: it stays
    /// where it is for as long as work under way might use it.
    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        let state = &self.state;
        let mapped = state.table.remove(va).ok_or_else(|| no_mapping(va))?;
        // Nobody is waited for at the end of a session: what it had goes when its work has ended.
        let patience = match state.stop.load(Ordering::SeqCst) {
            true => Duration::ZERO,
            false => SUBMISSION_PATIENCE,
        };
        let unmapped = mapped.is_device() && state.retired.await_submissions(patience);
        if unmapped {
            mapped.unmap_device();
        } else {
            state.retired.retire(Box::new(mapped));
        }
        Ok(())
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        self.state.check_alive()?;
        let table = &self.state.table;
        let mapped = table.mapped(va).ok_or_else(|| no_mapping(va))?;
        let before = table.span(va).map_or(Access::None, |span| span.access);
        // While rights are lost, copies are refused before the GPU would fault; so the table goes first then.
        let loses = !access.allows(before);
        if loses {
            table.set_access(va, access);
        }
        let changed = mapped.set_access(access);
        let now = if changed.is_ok() { access } else { before };
        table.set_access(va, now);
        changed
    }

    fn load_module(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError> {
        Ok(Arc::new(module::load(&self.state, image)?))
    }

    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError> {
        self.state.check_alive()?;
        if self.state.stop.load(Ordering::SeqCst) {
            return Err(refused(Status::DeviceLost, "the session has ended"));
        }
        Ok(Box::new(CudaQueue::new(&self.state)?))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        self.state.check_alive()?;
        Ok(Arc::new(recording::record(&self.state, work)?))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        let (mapped, offset) = self.state.table.find_readable(va, 8)?;
        mapped.load_u64(offset)
    }
}
