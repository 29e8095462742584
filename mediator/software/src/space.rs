//! Address spaces: mappings that change while kernels run, each of which sees the table that it began with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use causeway_mediator::backend::{BackendError, Memory, Module, ModuleError, Queue, Space};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::backend::Device;
use crate::memory::MemoryHandle;
use crate::module;
use crate::queue::SoftwareQueue;
use crate::table::{Entry, Table};
use crate::transfer;

/// Distance of the variables of different modules.
const VARIABLES_STRIDE: u64 = 1 << 30;
/// Bytes of each range for variables.
const VARIABLES_BYTES: u64 =
    crate::address::CONST_VARIABLES.end - crate::address::CONST_VARIABLES.start;

/// What queues and modules share with their address space.
pub(crate) struct SpaceState {
    /// The device.
    pub(crate) device: Arc<Device>,
    /// Set when the session ends.
    pub(crate) stop: Arc<AtomicBool>,
    table: RwLock<Arc<Table>>,
    /// Held while the table is changed, so that no change is lost.
    changing: Mutex<()>,
    modules: AtomicU64,
}

impl SpaceState {
    /// The mappings as they are now.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table by what `change` makes of it; false if it makes nothing.
    pub(crate) fn change(&self, change: impl FnOnce(&Table) -> Option<Table>) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(new) = change(&self.table()) else {
            return false;
        };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        // The old table may be the last to hold memory: that goes after the lock.
        let old = std::mem::replace(&mut *table, Arc::new(new));
        drop(table);
        drop(old);
        true
    }

    /// Where the variables of the next module go, as an offset in the ranges for them.
    pub(crate) fn reserve_variables(&self) -> Option<u64> {
        let number = self.modules.fetch_add(1, Ordering::Relaxed);
        let offset = number.checked_mul(VARIABLES_STRIDE)?;
        (offset < VARIABLES_BYTES).then_some(offset)
    }
}

/// An address space of a session.
pub(crate) struct SoftwareSpace {
    state: Arc<SpaceState>,
}

impl SoftwareSpace {
    /// An empty address space.
    pub(crate) fn new(device: Arc<Device>, stop: Arc<AtomicBool>) -> Self {
        let state = SpaceState {
            device,
            stop,
            table: RwLock::default(),
            changing: Mutex::default(),
            modules: AtomicU64::new(0),
        };
        Self {
            state: Arc::new(state),
        }
    }
}

fn failed(context: String) -> BackendError {
    BackendError {
        status: Status::BackEnd,
        context,
        source: None,
    }
}

impl Space for SoftwareSpace {
    fn map(
        &self,
        va: u64,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), BackendError> {
        let what = || format!("map {bytes:#x} bytes from {offset:#x} at {va:#x}");
        let memory = MemoryHandle::memory_of(memory).ok_or_else(|| failed(what()))?;
        let entry = Entry::new(va, memory, offset, bytes, access);
        let entry = entry.ok_or_else(|| failed(what()))?;
        if self.state.change(|table| table.with(entry)) {
            Ok(())
        } else {
            Err(failed(what()))
        }
    }

    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        if self.state.change(|table| table.without(va)) {
            Ok(())
        } else {
            Err(failed(format!("unmap {va:#x}")))
        }
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        if self.state.change(|table| table.with_access(va, access)) {
            Ok(())
        } else {
            Err(failed(format!("set access of {va:#x}")))
        }
    }

    fn load_module(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError> {
        Ok(Arc::new(module::load(&self.state, image)?))
    }

    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError> {
        Ok(Box::new(SoftwareQueue::new(Arc::clone(&self.state))))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        transfer::load_acquire(&self.state.table(), va)
    }
}
