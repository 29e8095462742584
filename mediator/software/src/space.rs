//! Address spaces: mappings that change while kernels run, each of which sees the table that it began with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use causeway_mediator::backend::{
    BackendError, Fault, Memory, Module, ModuleError, Queue, Recorded, Recording, Space,
};
use causeway_mediator::va::VaAllocator;
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::address;
use crate::backend::Device;
use crate::memory::MemoryHandle;
use crate::module::{self, SoftwareModule};
use crate::queue::{Multiprocessors, SoftwareQueue, SoftwareRecording};
use crate::table::{Account, Entry, Table};
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
    /// Ranges for the variables of modules, by number: those in use.
    variables: Mutex<BTreeSet<u64>>,
}

/// A range for the variables of one module, until dropped.
pub(crate) struct VariableRange {
    state: Arc<SpaceState>,
    number: u64,
}

impl VariableRange {
    /// Where the range begins, as an offset in the regions for variables.
    pub(crate) fn offset(&self) -> u64 {
        self.number * VARIABLES_STRIDE
    }
}

impl Drop for VariableRange {
    fn drop(&mut self) {
        lock(&self.state.variables).remove(&self.number);
    }
}

impl SpaceState {
    /// The mappings as they are now.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has `look` see the mappings as they are. They cannot change meanwhile, so it must be brief.
    pub(crate) fn with_table<R>(&self, look: impl FnOnce(&Table) -> R) -> R {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table by what `change` makes of it; false if it makes nothing.
    pub(crate) fn change(&self, change: impl FnOnce(&Table) -> Option<Table>) -> bool {
        let _changing = lock(&self.changing);
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

    /// A range for the variables of one more module, if there is one left.
    pub(crate) fn reserve_variables(self: &Arc<Self>) -> Option<VariableRange> {
        let mut taken = lock(&self.variables);
        let number = (0..VARIABLES_BYTES / VARIABLES_STRIDE).find(|n| !taken.contains(n))?;
        taken.insert(number);
        Some(VariableRange {
            state: Arc::clone(self),
            number,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address space of a session.
pub struct SoftwareSpace {
    state: Arc<SpaceState>,
    /// Bytes of each mapping, by its first address, and what is free beside them.
    addresses: Mutex<(BTreeMap<u64, u64>, VaAllocator)>,
}

impl SoftwareSpace {
    /// An empty address space.
    pub(crate) fn new(device: Arc<Device>, stop: Arc<AtomicBool>) -> Self {
        let state = SpaceState {
            device,
            stop,
            table: RwLock::default(),
            changing: Mutex::default(),
            variables: Mutex::default(),
        };
        Self {
            state: Arc::new(state),
            addresses: Mutex::new((BTreeMap::new(), VaAllocator::new(address::MAPPINGS))),
        }
    }

    /// Loads a module, as [`Space::load_module`] does, and gives it as what it is.
    ///
    /// # Errors
    /// [`ModuleError`].
    pub fn load(&self, image: &[u8]) -> Result<Arc<SoftwareModule>, ModuleError> {
        Ok(Arc::new(module::load(&self.state, image)?))
    }

    /// Stores the 32-bit word at `va`, with release ordering.
    ///
    /// # Errors
    /// A fault, if it cannot be written.
    pub fn store_u32(&self, va: u64, value: u32) -> Result<(), Fault> {
        self.state
            .with_table(|table| transfer::store_release_u32(table, va, value))
    }

    /// Loads the 32-bit word at `va`. `None` if it cannot be read.
    pub fn load_u32(&self, va: u64) -> Option<u32> {
        self.state
            .with_table(|table| transfer::load_acquire_u32(table, va))
    }

    /// An execution queue whose kernels find themselves on these multiprocessors (`%smid`).
    pub fn queue_on(&self, multiprocessors: Multiprocessors) -> Box<dyn Queue> {
        let state = Arc::clone(&self.state);
        Box::new(SoftwareQueue::new(state, multiprocessors))
    }
}

fn failed(context: String) -> BackendError {
    BackendError {
        status: Status::BackEnd,
        context,
        source: None,
    }
}

impl SoftwareSpace {
    /// Maps at an address that is free, for those who choose all addresses themselves: it may be any below 2^47, and
    /// only [`Self::unmap_at`] ends such a mapping. An address space is used in this way or through [`Space::map`].
    ///
    /// # Errors
    /// `BackEnd`, if something is mapped there, or the memory has no such range.
    pub fn map_at(
        &self,
        va: u64,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), BackendError> {
        let what = || format!("map {bytes:#x} bytes from {offset:#x} at {va:#x}");
        let account = Account(Arc::clone(memory));
        let memory = MemoryHandle::memory_of(memory).ok_or_else(|| failed(what()))?;
        let entry = Entry::new(va, memory, offset, bytes, access);
        let entry = entry.ok_or_else(|| failed(what()))?.on_account(account);
        if self.state.change(|table| table.with(entry)) {
            Ok(())
        } else {
            Err(failed(what()))
        }
    }

    /// Ends a mapping that [`Self::map_at`] has made.
    ///
    /// # Errors
    /// `BackEnd`, if there is none that begins at `va`.
    pub fn unmap_at(&self, va: u64) -> Result<(), BackendError> {
        if self.state.change(|table| table.without(va)) {
            Ok(())
        } else {
            Err(failed(format!("unmap {va:#x}")))
        }
    }
}

impl Space for SoftwareSpace {
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        let mut addresses = lock(&self.addresses);
        let (mappings, free) = &mut *addresses;
        let va = free.place(wanted, bytes)?;
        let mapped = self.map_at(va, memory, offset, bytes, access);
        match mapped {
            Ok(()) => {
                mappings.insert(va, bytes);
                Ok(va)
            }
            Err(error) => {
                free.give(va, bytes);
                Err(error)
            }
        }
    }

    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        let mut addresses = lock(&self.addresses);
        let (mappings, free) = &mut *addresses;
        let bytes = mappings.get(&va).copied();
        let bytes = bytes.filter(|_| self.state.change(|table| table.without(va)));
        let bytes = bytes.ok_or_else(|| failed(format!("unmap {va:#x}")))?;
        mappings.remove(&va);
        free.give(va, bytes);
        Ok(())
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        if self.state.change(|table| table.with_access(va, access)) {
            Ok(())
        } else {
            Err(failed(format!("set access of {va:#x}")))
        }
    }

    fn load_module(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError> {
        Ok(self.load(image)?)
    }

    fn create_queue(&self) -> Result<Box<dyn Queue>, BackendError> {
        Ok(self.queue_on(Multiprocessors::default()))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        Ok(Arc::new(SoftwareRecording::new(work)))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        self.state
            .with_table(|table| transfer::load_acquire(table, va))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Config, Software};
    use causeway_mediator::backend::{AllocateOptions, Backend};
    use causeway_protocol::message::MemoryKind;

    fn space() -> (Software, SoftwareSpace) {
        let software = Software::new(Config {
            memory_bytes: 16 << 20,
            cores: Some(1),
        });
        let space = SoftwareSpace::new(Arc::clone(software.device()), Arc::default());
        (software, space)
    }

    #[test]
    fn work_under_way_keeps_what_the_mediator_accounts_for() {
        let (software, space) = space();
        let memory = software
            .allocate(MemoryKind::Device, 4096, AllocateOptions::default())
            .unwrap();
        let account = Arc::downgrade(&memory);
        space
            .map(Some(0x1000_0000), &memory, 0, 4096, Access::ReadWrite)
            .unwrap();
        let under_way = space.state.table();
        space.unmap(0x1000_0000).unwrap();
        drop(memory);
        assert!(
            account.upgrade().is_some(),
            "work that began before still has the memory"
        );
        drop(under_way);
        assert!(account.upgrade().is_none());
    }

    #[test]
    fn ranges_for_variables_are_used_again() {
        const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
            .global .u32 counter;\n.visible .entry nothing() { ret; }\n";
        let (_software, space) = space();
        let ranges = VARIABLES_BYTES / VARIABLES_STRIDE;
        for _ in 0..=ranges {
            let module = space.load_module(PTX).expect("a range is free");
            assert_eq!(module.memory_bytes(), 2 * 4096, "code and variables");
        }
    }
}
