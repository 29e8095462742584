//! Looks up the addresses of work, mostly without a lock.
//!
//! The driver takes an address that it does not know for memory of this process, and would copy
//! that memory. So every address of a guest's copies, fills, fences and timestamps is looked up
//! here first. The parameters of kernels are not: the GPU's own page tables confine kernels.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::{Fault, Place};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use super::table::{Span, Table};
use crate::driver::code;

/// Number of spans that a queue remembers.
const REMEMBERED: usize = 4;

/// A range of addresses that a piece of work reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    /// Whether the work may use memory that only copies reach.
    pub(crate) may_be_apart: bool,
    /// The kind of work for messages, such as "a copy".
    pub(crate) what: &'static str,
}

/// Remembers the spans that one queue has looked up. They stay right when mappings are added, and
/// are forgotten when rights are lost.
#[derive(Default)]
pub(crate) struct Lookup {
    generation: u64,
    spans: [Option<Span>; REMEMBERED],
    next: usize,
}

impl Lookup {
    /// Forgets all spans if rights were lost in `table` since the last call. The caller calls this
    /// after it has announced a submission, and before it looks up an address for it.
    pub(crate) fn refresh(&mut self, table: &Table) {
        let generation = table.generation();
        if generation != self.generation {
            self.spans = [None; REMEMBERED];
            self.generation = generation;
        }
    }

    /// Returns the span that contains `address`; `None` if the address is not mapped.
    fn span(&mut self, table: &Table, address: u64) -> Option<Span> {
        let known = self.spans.iter().flatten();
        if let Some(span) = known.copied().find(|span| span.contains(address)) {
            return Some(span);
        }
        let span = table.span(address)?;
        self.spans[self.next] = Some(span);
        self.next = (self.next + 1) % REMEMBERED;
        Some(span)
    }

    /// Checks that the whole range `wanted` is mapped with the rights that it needs. Returns how
    /// many bytes of it lie in the first mapping.
    ///
    /// # Errors
    /// A fault with status `MemoryFault`, which names the first address that is not mapped so.
    pub(crate) fn check(&mut self, table: &Table, wanted: &Use) -> Result<u64, Fault> {
        let unmapped = |at| memory_fault(wanted, at, "is not mapped");
        let end = wanted.address.checked_add(wanted.bytes);
        let end = end.ok_or_else(|| unmapped(wanted.address))?;
        let (mut at, mut first) = (wanted.address, None);
        while at < end {
            let span = self.span(table, at).ok_or_else(|| unmapped(at))?;
            if !span.access.allows(wanted.access) {
                return Err(memory_fault(wanted, at, "is not mapped with that right"));
            }
            if matches!(span.place, Place::Apart { .. }) && !wanted.may_be_apart {
                let why = "is memory of a GPU that cannot be a peer: only copy packets reach it";
                return Err(memory_fault(wanted, at, why));
            }
            first = first.or(Some(span.end.min(end) - wanted.address));
            at = span.end;
        }
        Ok(first.unwrap_or(0))
    }

    /// Returns how many bytes from `address` lie in the mapping that contains it, and where their
    /// memory is; 0 bytes if the address is not mapped.
    pub(crate) fn run(&mut self, table: &Table, address: u64) -> (u64, Place) {
        self.span(table, address)
            .map_or_else(Default::default, |span| (span.end - address, span.place))
    }
}

/// The addresses of a recording, which are looked up again only if rights were lost since the last
/// time.
pub(crate) struct Standing {
    uses: Vec<Use>,
    /// Generation of the table at which all uses were allowed.
    generation: AtomicU64,
}

impl Standing {
    /// Returns the addresses `uses`, all of which were allowed at `generation` of the table.
    pub(crate) fn new(uses: Vec<Use>, generation: u64) -> Self {
        Self {
            uses,
            generation: AtomicU64::new(generation),
        }
    }

    /// Checks that all uses are still allowed. The caller has refreshed `lookup` after it announced
    /// the submission.
    ///
    /// # Errors
    /// A fault with status `MemoryFault`, as [`Lookup::check`] returns it.
    pub(crate) fn check(&self, table: &Table, lookup: &mut Lookup) -> Result<(), Fault> {
        // Not the generation of the table: that may have changed since `lookup` was refreshed.
        let generation = lookup.generation;
        if self.generation.load(Ordering::SeqCst) == generation {
            return Ok(());
        }
        for wanted in &self.uses {
            lookup.check(table, wanted)?;
        }
        self.generation.store(generation, Ordering::SeqCst);
        Ok(())
    }
}

fn memory_fault(wanted: &Use, at: u64, why: &str) -> Fault {
    let does = match wanted.access {
        Access::ReadWrite => "writes",
        Access::Read | Access::None => "reads",
    };
    Fault::new(
        Status::MemoryFault,
        format!(
            "{} {does} {:#x}+{:#x}, and {at:#x} {why}",
            wanted.what, wanted.address, wanted.bytes
        ),
    )
    .with_cuda_result(code::CUDA_ERROR_ILLEGAL_ADDRESS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::space::mapping::Mapping;

    fn wanted(address: u64, bytes: u64, access: Access) -> Use {
        Use {
            address,
            bytes,
            access,
            may_be_apart: false,
            what: "a copy",
        }
    }

    fn table() -> Table {
        let table = Table::default();
        for (start, access) in [
            (0x1000, Access::ReadWrite),
            (0x2000, Access::Read),
            (0x4000, Access::ReadWrite),
        ] {
            let nothing = Arc::new(Mapping::nothing());
            table.insert(start, 0x1000, access, nothing).unwrap();
        }
        table
    }

    #[test]
    fn ranges_may_go_over_neighbours_but_not_over_holes() {
        let (table, mut lookup) = (table(), Lookup::default());
        let mut check = |address, bytes, access| {
            let checked = lookup.check(&table, &wanted(address, bytes, access));
            checked.map_err(|fault| fault.text)
        };
        assert_eq!(check(0x1800, 0x1000, Access::Read), Ok(0x800));
        assert_eq!(check(0x1fff, 1, Access::ReadWrite), Ok(1));
        for (address, bytes, access, culprit) in [
            (
                0x1800,
                0x1000,
                Access::ReadWrite,
                "0x2000 is not mapped with",
            ),
            (0x2800, 0x1000, Access::Read, "0x3000 is not mapped"),
            (0x800, 0x1000, Access::Read, "0x800 is not mapped"),
            (0x4000, 0x1001, Access::Read, "0x5000 is not mapped"),
            (
                u64::MAX - 1,
                0x10,
                Access::Read,
                "0xfffffffffffffffe is not",
            ),
            (0, 1, Access::Read, "0x0 is not mapped"),
        ] {
            let text = check(address, bytes, access).unwrap_err();
            assert!(text.contains(culprit), "{text}");
        }
    }

    #[test]
    fn what_is_remembered_is_forgotten_when_rights_are_lost() {
        let (table, mut lookup) = (table(), Lookup::default());
        let write = wanted(0x1000, 8, Access::ReadWrite);
        lookup.refresh(&table);
        lookup.check(&table, &write).unwrap();
        table.remove(0x1000);
        lookup.refresh(&table);
        lookup.check(&table, &write).unwrap_err();
        table.set_access(0x4000, Access::Read);
        lookup.refresh(&table);
        let write = wanted(0x4000, 8, Access::ReadWrite);
        lookup.check(&table, &write).unwrap_err();
    }

    #[test]
    fn what_goes_while_a_recording_is_checked_is_missed_at_the_next_replay() {
        let (table, mut lookup) = (table(), Lookup::default());
        let write = wanted(0x1000, 8, Access::ReadWrite);
        let standing = Standing::new(vec![write], table.generation());
        table.set_access(0x2000, Access::None);
        lookup.refresh(&table);
        lookup.check(&table, &write).unwrap();
        // By another thread, after this submission was announced: it may use the memory once more.
        table.remove(0x1000);
        standing.check(&table, &mut lookup).unwrap();
        lookup.refresh(&table);
        standing.check(&table, &mut lookup).unwrap_err();
    }
}
