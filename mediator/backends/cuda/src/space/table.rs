//! The mappings of an address space, by address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::{BackendError, Place};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use super::mapping::Mapping;
use crate::error::refused;

/// The addresses of one mapping, with their rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) access: Access,
    /// Where the memory is.
    pub(crate) place: Place,
}

impl Span {
    /// Returns whether `address` is one of these addresses.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

struct Entry {
    span: Span,
    mapping: Arc<Mapping>,
}

/// The mappings of an address space. No two overlap.
///
/// `generation` changes whenever rights are lost, after the table has changed. A queue that has
/// announced a submission, and then finds the generation unchanged, may use spans that it looked up
/// before (see [`super::deferred`]).
#[derive(Default)]
pub(crate) struct Table {
    entries: Mutex<BTreeMap<u64, Entry>>,
    generation: AtomicU64,
}

impl Table {
    /// Returns how often rights were lost.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Removes the mappings of a module's variables, which begin at `addresses`, and returns them.
    pub(crate) fn remove_variables(
        &self,
        addresses: impl IntoIterator<Item = u64>,
    ) -> Vec<Arc<Mapping>> {
        let removed = addresses.into_iter().filter_map(|va| self.remove(va));
        removed.collect()
    }

    /// Adds `mapping` with the rights `access` at the addresses `start..start + bytes`.
    ///
    /// # Errors
    /// `AddressInUse` if some of these addresses are mapped, or beyond the last address.
    pub(crate) fn insert(
        &self,
        start: u64,
        bytes: u64,
        access: Access,
        mapping: Arc<Mapping>,
    ) -> Result<(), BackendError> {
        let taken = || {
            let text =
                format!("map {bytes:#x} bytes at {start:#x}: some of the addresses are in use");
            refused(Status::AddressInUse, text)
        };
        let end = start.checked_add(bytes).ok_or_else(taken)?;
        let mut entries = self.entries.lock();
        if overlaps(&entries, start, end) {
            return Err(taken());
        }
        let span = Span {
            start,
            end,
            access,
            place: mapping.place(),
        };
        entries.insert(start, Entry { span, mapping });
        Ok(())
    }

    /// Returns whether nothing is mapped at the addresses `start..start + bytes`.
    pub(crate) fn is_free(&self, start: u64, bytes: u64) -> bool {
        match start.checked_add(bytes) {
            Some(end) => !overlaps(&self.entries.lock(), start, end),
            None => false,
        }
    }

    /// Removes and returns the mapping that begins at `va`; `None` if none does.
    pub(crate) fn remove(&self, va: u64) -> Option<Arc<Mapping>> {
        let removed = self.entries.lock().remove(&va)?;
        self.generation.fetch_add(1, Ordering::SeqCst);
        Some(removed.mapping)
    }

    /// Changes the rights of the mapping that begins at `va`.
    pub(crate) fn set_access(&self, va: u64, access: Access) {
        if let Some(entry) = self.entries.lock().get_mut(&va) {
            entry.span.access = access;
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the mapping that begins at `va`; `None` if none does.
    pub(crate) fn mapping(&self, va: u64) -> Option<Arc<Mapping>> {
        Some(Arc::clone(&self.entries.lock().get(&va)?.mapping))
    }

    /// Returns the addresses and rights of the mapping that contains `address`; `None` if the
    /// address is not mapped.
    pub(crate) fn span(&self, address: u64) -> Option<Span> {
        let entries = self.entries.lock();
        let (_, entry) = entries.range(..=address).next_back()?;
        entry.span.contains(address).then_some(entry.span)
    }

    /// Returns the mapping that contains `bytes` bytes from `address`, with the offset of `address`
    /// in it; `None` if no mapping does, or if it cannot be read, or by copies only.
    pub(crate) fn find_readable(&self, address: u64, bytes: u64) -> Option<(Arc<Mapping>, u64)> {
        let end = address.checked_add(bytes)?;
        let entries = self.entries.lock();
        let (start, entry) = entries.range(..=address).next_back()?;
        let Span { access, place, .. } = entry.span;
        let is_reached = access.allows(Access::Read) && !matches!(place, Place::Apart { .. });
        let readable = end <= entry.span.end && is_reached;
        readable.then(|| (Arc::clone(&entry.mapping), address - start))
    }

    /// Leaks all mappings, so that everything stays mapped until the process ends.
    pub(crate) fn leak(&self) {
        for (_, entry) in std::mem::take(&mut *self.entries.lock()) {
            std::mem::forget(entry.mapping);
        }
    }
}

fn overlaps(entries: &BTreeMap<u64, Entry>, start: u64, end: u64) -> bool {
    let before = entries.range(..end).next_back();
    before.is_some_and(|(_, entry)| entry.span.end > start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(spans: &[(u64, u64, Access)]) -> Table {
        let table = Table::default();
        for (start, bytes, access) in spans.iter().copied() {
            let mapping = Arc::new(Mapping::nothing());
            table.insert(start, bytes, access, mapping).unwrap();
        }
        table
    }

    #[test]
    fn addresses_are_found_up_to_the_last_byte() {
        let table = table(&[
            (0x1000, 0x1000, Access::Read),
            (0x2000, 0x1000, Access::ReadWrite),
        ]);
        assert_eq!(table.span(0xfff), None);
        assert_eq!(table.span(0x1000).unwrap().access, Access::Read);
        assert_eq!(table.span(0x1fff).unwrap().end, 0x2000);
        assert_eq!(table.span(0x2000).unwrap().access, Access::ReadWrite);
        assert_eq!(table.span(0x3000), None);
        assert_eq!(table.span(u64::MAX), None);
    }

    #[test]
    fn overlaps_are_refused() {
        let table = table(&[(0x2000, 0x2000, Access::Read)]);
        for (start, bytes) in [
            (0x1000, 0x1001),
            (0x2000, 1),
            (0x3fff, 1),
            (0, 0x10000),
            (u64::MAX, 2),
        ] {
            assert!(!table.is_free(start, bytes), "{start:#x}");
            let nothing = Arc::new(Mapping::nothing());
            let refused = table.insert(start, bytes, Access::Read, nothing);
            assert_eq!(refused.unwrap_err().status, Status::AddressInUse);
        }
        assert!(table.is_free(0x1000, 0x1000) && table.is_free(0x4000, 1));
    }

    #[test]
    fn losing_rights_shows() {
        let table = table(&[(0x1000, 0x1000, Access::ReadWrite)]);
        let before = table.generation();
        table.set_access(0x1000, Access::None);
        assert_ne!(table.generation(), before);
        assert!(table.find_readable(0x1000, 8).is_none());
        table.set_access(0x1000, Access::Read);
        assert!(table.find_readable(0x1ff8, 8).is_some());
        assert!(table.find_readable(0x1ff9, 8).is_none());
        assert!(table.find_readable(u64::MAX - 3, 8).is_none());
        let before = table.generation();
        assert!(table.remove(0x1000).is_some());
        assert!(table.remove(0x1000).is_none());
        assert_ne!(table.generation(), before);
    }
}
