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
use crate::table::{Account, Entry, Table};
use crate::transfer;

/// The mappings of one address space.
#[derive(Debug)]
pub struct Mappings {
    table: RwLock<Arc<Table>>,
    /// Held while the table is changed, so that no change is lost.
    changing: Mutex<()>,
    /// Bytes of each mapping, by its first address, and what is free beside them.
    addresses: Mutex<(BTreeMap<u64, u64>, VaAllocator)>,
}

/// Part of an allocation that is to be mapped.
#[derive(Clone)]
pub struct Part<'a> {
    /// The allocation as the mediator accounts for it. It is held as long as the mapping exists, or
    /// work that began before the mapping ended.
    pub account: &'a Arc<dyn Memory>,
    /// Memory of the allocation.
    pub memory: Arc<dyn MappedMemory>,
    /// Offset of the part in the memory, in bytes.
    pub offset: u64,
    /// Size of the part in bytes.
    pub bytes: u64,
    /// What work may do with the mapping.
    pub access: Access,
}

causeway_memory::debug_fields!(Part<'_> { offset, bytes, access });

impl Mappings {
    /// Creates an address space without mappings. [`Self::map`] places mappings in `addresses`.
    pub fn new(addresses: Range<u64>) -> Self {
        Self {
            table: RwLock::default(),
            changing: Mutex::default(),
            addresses: Mutex::new((BTreeMap::new(), VaAllocator::new(addresses))),
        }
    }

    /// Returns the mappings as they are now.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    /// Calls `look` with the mappings as they are. They cannot change until `look` returns, so it
    /// must be quick.
    pub fn with_table<R>(&self, look: impl FnOnce(&Table) -> R) -> R {
        look(&self.table.read())
    }

    /// Replaces the table by the one that `change` returns. Returns false, and changes nothing, if
    /// `change` returns `None`.
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

    /// Maps `part` at GPU virtual address `va`, which may be any below 2^47. Only
    /// [`Self::unmap_at`] ends the mapping. This is for callers that choose all addresses
    /// themselves; the others use [`Self::map`], and no address space is used in both ways.
    ///
    /// # Errors
    /// `BackEnd`, if another mapping overlaps, or the memory has no such range.
    pub fn map_at(&self, va: u64, part: Part<'_>) -> Result<(), BackendError> {
        let (offset, bytes) = (part.offset, part.bytes);
        let what = || format!("map {bytes:#x} bytes from {offset:#x} at {va:#x}");
        let account = Account(Arc::clone(part.account));
        let entry = Entry::new(va, part.memory, offset, bytes, part.access);
        let entry = entry.ok_or_else(|| failed(what()))?.on_account(account);
        if self.change(|table| table.with(entry)) {
            Ok(())
        } else {
            Err(failed(what()))
        }
    }

    /// Ends the mapping that [`Self::map_at`] made at `va`.
    ///
    /// # Errors
    /// `BackEnd`, if no mapping begins at `va`.
    pub fn unmap_at(&self, va: u64) -> Result<(), BackendError> {
        if self.change(|table| table.without(va)) {
            Ok(())
        } else {
            Err(failed(format!("unmap {va:#x}")))
        }
    }

    /// Maps `part` at `wanted`, or at a free address, as [`causeway_mediator::backend::Space::map`]
    /// says, and returns the address.
    ///
    /// # Errors
    /// As that method.
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
    /// `BackEnd`, if no mapping begins at `va`.
    pub fn unmap(&self, va: u64) -> Result<(), BackendError> {
        let mut addresses = self.addresses.lock();
        let (mappings, free) = &mut *addresses;
        let bytes = mappings.get(&va).copied();
        let bytes = bytes.filter(|_| self.change(|table| table.without(va)));
        let bytes = bytes.ok_or_else(|| failed(format!("unmap {va:#x}")))?;
        mappings.remove(&va);
        free.give(va, bytes);
        Ok(())
    }

    /// Changes what work may do with the mapping that begins at `va`.
    ///
    /// # Errors
    /// `BackEnd`, if no mapping begins at `va`.
    pub fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        if self.change(|table| table.with_access(va, access)) {
            Ok(())
        } else {
            Err(failed(format!("set access of {va:#x}")))
        }
    }

    /// Loads the 64-bit word at GPU virtual address `va`, with acquire ordering. `None` if `va` is
    /// not a multiple of 8, or no mapping holds all eight bytes.
    pub fn load_u64(&self, va: u64) -> Option<u64> {
        self.with_table(|table| transfer::load_acquire(table, va))
    }
}

fn failed(context: String) -> BackendError {
    BackendError::new(Status::BackEnd, context)
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
