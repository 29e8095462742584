//! Address spaces: mappings that change while work runs, each piece of which sees the table that it began with.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use causeway_mediator::backend::{BackendError, Memory};
use causeway_mediator::va::VaAllocator;
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::mapped::Mapped;
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

/// What is to be mapped.
#[derive(Clone)]
pub struct Part<'a> {
    /// What the mediator handed over; held as long as the mapping, or work that began with it.
    pub account: &'a Arc<dyn Memory>,
    /// The memory behind it.
    pub memory: Arc<dyn Mapped>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Rights of work.
    pub access: Access,
}

impl Mappings {
    /// None yet; [`Self::map`] finds places in `addresses`.
    pub fn new(addresses: Range<u64>) -> Self {
        Self {
            table: RwLock::default(),
            changing: Mutex::default(),
            addresses: Mutex::new((BTreeMap::new(), VaAllocator::new(addresses))),
        }
    }

    /// The mappings as they are now.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has `look` see the mappings as they are. They cannot change meanwhile, so it must be brief.
    pub fn with_table<R>(&self, look: impl FnOnce(&Table) -> R) -> R {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table by what `change` makes of it; false if it makes nothing.
    pub fn change(&self, change: impl FnOnce(&Table) -> Option<Table>) -> bool {
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

    /// Maps at an address that is free, for those who choose all addresses themselves: it may be any below 2^47, and
    /// only [`Self::unmap_at`] ends such a mapping. An address space is used in this way or through [`Self::map`].
    ///
    /// # Errors
    /// `BackEnd`, if something is mapped there, or the memory has no such range.
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

    /// Ends a mapping that [`Self::map_at`] has made.
    ///
    /// # Errors
    /// `BackEnd`, if there is none that begins at `va`.
    pub fn unmap_at(&self, va: u64) -> Result<(), BackendError> {
        if self.change(|table| table.without(va)) {
            Ok(())
        } else {
            Err(failed(format!("unmap {va:#x}")))
        }
    }

    /// As [`causeway_mediator::backend::Space::map`].
    ///
    /// # Errors
    /// As there.
    pub fn map(&self, wanted: Option<u64>, part: Part<'_>) -> Result<u64, BackendError> {
        let mut addresses = lock(&self.addresses);
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

    /// As [`causeway_mediator::backend::Space::unmap`].
    ///
    /// # Errors
    /// As there.
    pub fn unmap(&self, va: u64) -> Result<(), BackendError> {
        let mut addresses = lock(&self.addresses);
        let (mappings, free) = &mut *addresses;
        let bytes = mappings.get(&va).copied();
        let bytes = bytes.filter(|_| self.change(|table| table.without(va)));
        let bytes = bytes.ok_or_else(|| failed(format!("unmap {va:#x}")))?;
        mappings.remove(&va);
        free.give(va, bytes);
        Ok(())
    }

    /// As [`causeway_mediator::backend::Space::set_access`].
    ///
    /// # Errors
    /// As there.
    pub fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        if self.change(|table| table.with_access(va, access)) {
            Ok(())
        } else {
            Err(failed(format!("set access of {va:#x}")))
        }
    }

    /// As [`causeway_mediator::backend::Space::load_u64`].
    pub fn load_u64(&self, va: u64) -> Option<u64> {
        self.with_table(|table| transfer::load_acquire(table, va))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(context: String) -> BackendError {
    BackendError {
        status: Status::BackEnd,
        context,
        source: None,
    }
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
