//! Address spaces: mappings that change while work runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use causeway_mediator::backend::{BackendError, Memory};
use causeway_mediator::va::VaAllocator;
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::{Mutex, RwLock};

use crate::mapped::MappedMemory;
use crate::table::{Entry, Table};
use crate::transfer;

/// An address space: which allocation appears at which GPU virtual address. Its mappings may change
/// while work uses them.
#[derive(Debug)]
pub struct Mappings {
    table: RwLock<Arc<Table>>,
    /// Held while the table is changed, so that no change is lost.
    changing: Mutex<()>,
    /// Bytes of each mapping, by its first address, and what is free beside them.
    addresses: Mutex<(BTreeMap<u64, u64>, VaAllocator)>,
}

/// A part of an allocation, with the rights that its mapping will have.
#[derive(Clone)]
pub struct Part<'a> {
    /// The mediator's handle of the allocation. The allocation stays charged to its session as long
    /// as a copy of this handle exists. The address space keeps one until the mapping has ended and
    /// all work that began before is done.
    pub account: &'a Arc<dyn Memory>,
    /// The memory of the allocation, as this process accesses it.
    pub memory: Arc<dyn MappedMemory>,
    /// Offset of the part within `memory`, in bytes.
    pub offset: u64,
    /// Size of the part in bytes.
    pub bytes: u64,
    /// What copies, fills and kernels may do with the mapping.
    pub access: Access,
}

causeway_memory::debug_fields!(Part<'_> { offset, bytes, access });

impl Mappings {
    /// Creates an address space without mappings, in which [`Self::map`] may use the GPU virtual
    /// addresses `addresses`.
    pub fn new(addresses: Range<u64>) -> Self {
        Self {
            table: RwLock::default(),
            changing: Mutex::default(),
            addresses: Mutex::new((BTreeMap::new(), VaAllocator::new(addresses))),
        }
    }

    /// Returns a snapshot of the mappings. Later changes of the address space do not affect it.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    /// Calls `look` with the current mappings and returns its result. Mappings cannot change while
    /// `look` runs, so `look` must be quick.
    pub fn with_table<R>(&self, look: impl FnOnce(&Table) -> R) -> R {
        look(&self.table.read())
    }

    /// Replaces the table of mappings by the one that `change` makes from it, and returns true. If
    /// `change` returns `None`, the table stays as it is, and the result is false.
    pub fn change(&self, change: impl FnOnce(&Table) -> Option<Table>) -> bool {
        let _changing = self.changing.lock();
        let Some(new) = change(&self.table()) else {
            return false;
        };
        let mut table = self.table.write();
        // The old table may be the last to hold memory: that goes after the lock.
        let old = std::mem::replace(&mut *table, Arc::new(new));
        drop(table);
        drop(old);
        true
    }

    /// Maps `part` at GPU virtual address `va`, which may be any address below 2^47. Only
    /// [`Self::unmap_at`] ends the mapping.
    ///
    /// This is for callers that choose all addresses of an address space themselves. Other callers
    /// use [`Self::map`]; one address space must not be used in both ways.
    ///
    /// # Errors
    /// [`Status::BackEnd`] if another mapping overlaps, or if the memory is shorter than the part.
    pub fn map_at(&self, va: u64, part: Part<'_>) -> Result<(), BackendError> {
        let (offset, bytes) = (part.offset, part.bytes);
        let account = Arc::clone(part.account);
        let entry = Entry::new(va, part.memory, offset, bytes, part.access);
        let mapped = entry.is_some_and(|e| self.change(|table| table.with(e.on_account(account))));
        mapped.then_some(()).ok_or_else(|| {
            failed(format!(
                "map {bytes:#x} bytes from {offset:#x} at {va:#x}: outside the memory, or mapped \
                 already"
            ))
        })
    }

    /// Ends the mapping that [`Self::map_at`] made at `va`.
    ///
    /// # Errors
    /// [`Status::BackEnd`] if no mapping begins at `va`.
    pub fn unmap_at(&self, va: u64) -> Result<(), BackendError> {
        let unmapped = self.change(|table| table.without(va));
        unmapped.then_some(()).ok_or_else(|| absent(va))
    }

    /// Maps `part` at GPU virtual address `wanted`, or at a free address if `wanted` is `None`, and
    /// returns the address.
    ///
    /// # Errors
    /// [`Status::AddressInUse`] if `wanted` is taken or outside the address space,
    /// [`Status::NoMemory`] if no free range of addresses is large enough, [`Status::BackEnd`] if
    /// the memory is shorter than the part.
    pub fn map(&self, wanted: Option<u64>, part: Part<'_>) -> Result<u64, BackendError> {
        let mut addresses = self.addresses.lock();
        let (mappings, free) = &mut *addresses;
        let bytes = part.bytes;
        let va = free.place(wanted, bytes)?;
        match self.map_at(va, part) {
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

    /// Ends the mapping that [`Self::map`] made at `va`.
    ///
    /// # Errors
    /// [`Status::BackEnd`] if [`Self::map`] made no mapping at `va`.
    pub fn unmap(&self, va: u64) -> Result<(), BackendError> {
        let mut addresses = self.addresses.lock();
        let (mappings, free) = &mut *addresses;
        let bytes = *mappings.get(&va).ok_or_else(|| absent(va))?;
        self.unmap_at(va)?;
        mappings.remove(&va);
        free.give(va, bytes);
        Ok(())
    }

    /// Changes what work may do with the mapping that begins at `va`.
    ///
    /// # Errors
    /// [`Status::BackEnd`] if no mapping begins at `va`.
    pub fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        let changed = self.change(|table| table.with_access(va, access));
        changed.then_some(()).ok_or_else(|| absent(va))
    }

    /// Loads the 64-bit word at GPU virtual address `va`, with acquire ordering. Returns `None` if
    /// `va` is not a multiple of 8, or if no mapping contains all eight bytes.
    pub fn load_u64(&self, va: u64) -> Option<u64> {
        self.with_table(|table| transfer::load_acquire(table, va))
    }
}

fn failed(context: String) -> BackendError {
    BackendError::new(Status::BackEnd, context)
}

fn absent(va: u64) -> BackendError {
    failed(format!("no mapping begins at {va:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HostHandle;
    use causeway_memory::PageSize;

    #[test]
    fn work_under_way_keeps_what_the_mediator_accounts_for() {
        let mappings = Mappings::new(0x1000_0000..0x2000_0000);
        let memory = HostHandle::allocate(4096, PageSize::Small).unwrap();
        let account = Arc::downgrade(&memory);
        let part = Part {
            account: &memory,
            memory: HostHandle::memory_of(&memory).unwrap(),
            offset: 0,
            bytes: 4096,
            access: Access::ReadWrite,
        };
        mappings.map(Some(0x1000_0000), part).unwrap();
        let under_way = mappings.table();
        mappings.unmap(0x1000_0000).unwrap();
        drop(memory);
        assert!(
            account.upgrade().is_some(),
            "work that began before still has the memory"
        );
        drop(under_way);
        assert!(account.upgrade().is_none());
    }
}
