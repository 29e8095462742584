//! Snapshots of the mappings of an address space.

use std::sync::Arc;

use causeway_mediator::backend::{Memory, Place};
use causeway_protocol::Access;

use crate::mapped::{Caching, MappedMemory};

/// One mapping: a range of GPU virtual addresses, and the memory that appears there.
#[derive(Clone)]
pub struct Entry {
    /// First GPU virtual address of the mapping.
    pub start: u64,
    /// GPU virtual address behind the last byte of the mapping.
    pub end: u64,
    /// Address of the first byte in this process. It is valid as long as a [`Table`] with this
    /// entry exists.
    pub host: u64,
    /// What kernels may do with the mapping.
    pub access: Access,
    /// What copies and fills may do with it.
    copied: Access,
    /// Where the memory is, as the address space's device sees it.
    place: Place,
    /// How CPUs access the memory.
    caching: Caching,
    /// Keeps the memory alive.
    _memory: Arc<dyn MappedMemory>,
    /// Keeps the mediator's account of the memory alive, so that memory in use stays charged.
    _account: Option<Arc<dyn Memory>>,
}

causeway_memory::debug_fields!(Entry {
    start,
    end,
    host,
    access,
    caching
});

impl Entry {
    /// Returns the mapping of `bytes` bytes of `memory`, beginning at byte `offset`, at GPU virtual
    /// address `start`: memory of the own device. `access` says what kernels, copies and fills may
    /// do with it. Returns `None` if `bytes` is 0, if `memory` has no such range, or if the
    /// addresses overflow.
    pub fn new(
        start: u64,
        memory: Arc<dyn MappedMemory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Option<Self> {
        let end = start.checked_add(bytes)?;
        if bytes == 0 || offset.checked_add(bytes)? > memory.bytes() {
            return None;
        }
        let host = memory.base().as_ptr() as u64 + offset;
        Some(Self {
            start,
            end,
            host,
            access,
            copied: access,
            place: Place::Own,
            caching: memory.caching(),
            _memory: memory,
            _account: None,
        })
    }

    /// Returns the mapping with the mediator's account, which says where the memory is. Kernels do
    /// not reach what is apart.
    pub(crate) fn on_account(self, account: Arc<dyn Memory>) -> Self {
        let mut entry = Self {
            place: account.place(),
            _account: Some(account),
            ..self
        };
        entry.set_access(entry.copied);
        entry
    }

    fn set_access(&mut self, access: Access) {
        self.copied = access;
        self.access = match self.place {
            Place::Apart { .. } => Access::None,
            Place::Host | Place::Own | Place::Peer => access,
        };
    }

    /// Returns the mapping with the right for copies and fills to write it, whatever kernels may
    /// do: constants are like that.
    #[must_use]
    pub fn filled_by_copies(self) -> Self {
        Self {
            copied: Access::ReadWrite,
            ..self
        }
    }

    /// Returns whether the rights that kernels have include `wanted`.
    #[inline]
    pub fn allows(&self, wanted: Access) -> bool {
        self.access.allows(wanted)
    }
}

/// Memory of this process behind a GPU virtual address, up to the end of its mapping.
#[derive(Debug)]
pub(crate) struct HostRange {
    /// Address in this process of the byte that the GPU virtual address names.
    pub at: u64,
    /// Number of bytes from `at` to the end of the mapping.
    pub left: u64,
    /// Whether CPUs access the memory through their caches.
    pub caching: Caching,
    /// Where the memory is.
    pub place: Place,
}

impl HostRange {
    /// Returns what lies `offset` bytes further, which is within the mapping.
    pub(crate) const fn behind(&self, offset: u64) -> Self {
        Self {
            at: self.at + offset,
            left: self.left - offset,
            caching: self.caching,
            place: self.place,
        }
    }
}

/// A snapshot of the mappings of an address space, in ascending order of their addresses, without
/// overlap.
#[derive(Clone, Debug, Default)]
pub struct Table {
    entries: Vec<Entry>,
}

impl Table {
    /// Returns all mappings, in ascending order of their addresses.
    #[inline]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the index of the mapping that contains GPU virtual address `address`; `None` if no
    /// mapping does.
    #[inline]
    pub fn find(&self, address: u64) -> Option<usize> {
        let after = self.entries.partition_point(|e| e.start <= address);
        let index = after.checked_sub(1)?;
        (address < self.entries[index].end).then_some(index)
    }

    /// Returns a copy of the table with `entry` added; `None` if `entry` overlaps another mapping.
    pub fn with(&self, entry: Entry) -> Option<Self> {
        let index = self.entries.partition_point(|e| e.start < entry.start);
        let free_before = index == 0 || self.entries[index - 1].end <= entry.start;
        let free_behind = self
            .entries
            .get(index)
            .is_none_or(|next| entry.end <= next.start);
        if !free_before || !free_behind {
            return None;
        }
        let mut entries = Vec::with_capacity(self.entries.len() + 1);
        entries.extend_from_slice(&self.entries[..index]);
        entries.push(entry);
        entries.extend_from_slice(&self.entries[index..]);
        Some(Self { entries })
    }

    /// Returns a copy of the table without the mapping that begins at `start`; `None` if no mapping
    /// begins there.
    pub fn without(&self, start: u64) -> Option<Self> {
        let index = self.position(start)?;
        let mut entries = self.entries.clone();
        entries.remove(index);
        Some(Self { entries })
    }

    /// Returns a copy of the table in which the mapping that begins at `start` has the rights
    /// `access`; `None` if no mapping begins there.
    pub fn with_access(&self, start: u64, access: Access) -> Option<Self> {
        let index = self.position(start)?;
        let mut entries = self.entries.clone();
        entries[index].set_access(access);
        Some(Self { entries })
    }

    /// Translates GPU virtual address `address`. Returns the corresponding address in this process,
    /// and the number of bytes from there to the end of the mapping. Returns `None` if no mapping
    /// contains `address`, or if the rights of the mapping do not include `wanted`.
    #[inline]
    pub fn host(&self, address: u64, wanted: Access) -> Option<(u64, u64)> {
        let entry = &self.entries[self.find(address)?];
        let found = (entry.host + (address - entry.start), entry.end - address);
        entry.allows(wanted).then_some(found)
    }

    /// Translates GPU virtual address `address` for a copy or a fill: as [`Self::host`] does, but
    /// with the rights that copies have. Says whether the memory is cached.
    #[inline]
    pub(crate) fn reach(&self, address: u64, wanted: Access) -> Option<HostRange> {
        let entry = &self.entries[self.find(address)?];
        entry.copied.allows(wanted).then(|| HostRange {
            at: entry.host + (address - entry.start),
            left: entry.end - address,
            caching: entry.caching,
            place: entry.place,
        })
    }

    fn position(&self, start: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&start, |e| e.start).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HostMemory;
    use causeway_memory::PageSize;

    fn entry(start: u64, bytes: u64) -> Entry {
        let memory = Arc::new(HostMemory::allocate(bytes, PageSize::Large).unwrap());
        Entry::new(start, memory, 0, bytes, Access::ReadWrite).unwrap()
    }

    #[test]
    fn addresses_are_found_in_their_mapping_and_nowhere_else() {
        let table = Table::default();
        let table = table.with(entry(0x20_000, 0x2000)).unwrap();
        let table = table.with(entry(0x10_000, 0x1000)).unwrap();
        let table = table.with(entry(0x22_000, 0x1000)).unwrap();
        for (address, index) in [
            (0xffff, None),
            (0x10_000, Some(0)),
            (0x10_fff, Some(0)),
            (0x11_000, None),
            (0x21_fff, Some(1)),
            (0x22_000, Some(2)),
            (0x23_000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(table.find(address), index, "{address:#x}");
        }
        assert!(table.with(entry(0x1f_000, 0x2000)).is_none());
        assert!(table.with(entry(0x21_000, 0x1000)).is_none());
        assert!(table.without(0x10_800).is_none());
        let table = table.without(0x20_000).unwrap();
        assert_eq!(table.find(0x20_000), None);
        assert_eq!(table.entries().len(), 2);
    }

    #[test]
    fn rights_are_those_of_the_mapping() {
        let table = Table::default().with(entry(0x10_000, 0x1000)).unwrap();
        let table = table.with_access(0x10_000, Access::Read).unwrap();
        assert!(table.host(0x10_008, Access::Read).is_some());
        assert!(table.host(0x10_008, Access::ReadWrite).is_none());
        assert_eq!(table.host(0x10_008, Access::Read).unwrap().1, 0xff8);
    }

    #[test]
    fn copies_write_constants_and_kernels_do_not() {
        let read_only = |start| {
            let memory = Arc::new(HostMemory::allocate(0x1000, PageSize::Large).unwrap());
            Entry::new(start, memory, 0, 0x1000, Access::Read).unwrap()
        };
        let table = Table::default().with(read_only(0x10_000).filled_by_copies());
        let table = table.unwrap().with(read_only(0x20_000)).unwrap();
        assert!(table.host(0x10_008, Access::ReadWrite).is_none());
        let reached = table.reach(0x10_008, Access::ReadWrite).unwrap();
        assert_eq!(reached.left, 0xff8);
        assert!(table.reach(0x20_008, Access::ReadWrite).is_none());
    }
}
