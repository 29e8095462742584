//! What memory is at which address.

use std::collections::BTreeMap;

use causeway_shim_linux::shim::{Allocation, Piece};

use super::advice::Advice;
use super::graph_memory::GraphPiece;
use super::host::HostPiece;
use super::physical::Physicals;
use super::pointer_data::ImportedPiece;
use super::registered::Replaced;
use super::stores::Stored;
use super::virtual_memory::Mapped;
use crate::error::{Answer, Code};

/// Memory that CUDA knows, at the address that programs use.
pub(crate) struct Region {
    pub(crate) bytes: u64,
    /// Where the GPU reaches the first byte.
    pub(crate) gpu: Option<u64>,
    /// Where the CPU reaches the first byte.
    pub(crate) host: Option<u64>,
    /// Handle of the context in which it was allocated; 0 if it belongs to none.
    pub(crate) context: usize,
    /// Flags of the call that made it.
    pub(crate) flags: u32,
    pub(crate) backing: Backing,
}

/// What is behind a region.
pub(crate) enum Backing {
    /// A piece of device memory, and the handle of the memory pool that counts it.
    Piece { piece: Piece, pool: usize },
    /// Memory of a node of a graph.
    Graph(GraphPiece),
    /// Page-locked host memory of `cuMemHostAlloc`.
    Host(HostPiece),
    /// Managed memory, and the handle of the memory pool that counts it; 0 if it has none.
    Managed {
        piece: HostPiece,
        advice: Advice,
        pool: usize,
    },
    /// Page-locked host memory of a memory pool.
    Pooled { piece: HostPiece, pool: usize },
    /// Memory of a memory pool that other processes may use.
    Stored(Stored),
    /// Memory of another process's memory pool.
    ImportedPiece(ImportedPiece),
    /// Memory of the program, registered by `cuMemHostRegister`.
    Registered(Option<Replaced>),
    /// A mapping of `cuMemMap`.
    Mapped(Mapped),
    /// Memory of another process, opened by `cuIpcOpenMemHandle`.
    Imported { _memory: Allocation<'static> },
    /// A variable of a module.
    Variable,
    /// A managed variable of a module, whose memory the module has.
    ManagedVariable(Advice),
    /// The GPU's address of a region that has another address for the CPU.
    Alias { start: u64 },
}

impl Region {
    /// Returns whether the program has chosen the address.
    const fn is_placed(&self) -> bool {
        matches!(self.backing, Backing::Mapped(_) | Backing::Registered(_))
    }
}

/// All regions, reservations of addresses, and handles of physical memory.
#[derive(Default)]
pub(crate) struct Regions {
    regions: BTreeMap<u64, (u64, Region)>,
    /// Number of the region that was made last: no two have the same.
    numbered: u64,
    /// Reservations of `cuMemAddressReserve`: first address and bytes.
    pub(super) reserved: BTreeMap<u64, u64>,
    pub(super) physicals: Physicals,
}

impl Regions {
    /// Adds a region, which overlaps no other. Returns the address that programs use: that of the
    /// CPU, if the CPU reaches it.
    pub(crate) fn insert(&mut self, region: Region) -> u64 {
        let start = region.host.or(region.gpu).unwrap_or_default();
        self.numbered += 1;
        if let Some(gpu) = region.gpu.filter(|gpu| *gpu != start) {
            let alias = Region {
                backing: Backing::Alias { start },
                bytes: region.bytes,
                gpu: region.gpu,
                host: region.host,
                context: region.context,
                flags: region.flags,
            };
            self.regions.insert(gpu, (self.numbered, alias));
        }
        self.regions.insert(start, (self.numbered, region));
        start
    }

    /// Adds a mapping of `cuMemMap` at an address, which the GPU does not reach yet.
    pub(super) fn insert_mapping(&mut self, start: u64, bytes: u64, mapped: Mapped) {
        self.numbered += 1;
        let region = Region {
            bytes,
            gpu: None,
            host: None,
            context: 0,
            flags: 0,
            backing: Backing::Mapped(mapped),
        };
        self.regions.insert(start, (self.numbered, region));
    }

    /// Returns all regions, by their addresses.
    pub(super) fn all(&self) -> impl Iterator<Item = &Region> {
        self.regions.values().map(|(_, region)| region)
    }

    /// Returns the region that contains an address, and where it begins.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Region)> {
        let (start, (_, region)) = self.regions.range(..=address).next_back()?;
        (address - start < region.bytes).then_some((*start, region))
    }

    /// Returns the region that contains an address, as [`Self::find`]. An address that only the GPU
    /// uses leads to the region at the CPU's address.
    pub(crate) fn original(&self, address: u64) -> Option<(u64, &Region)> {
        match self.find(address)? {
            (
                _,
                Region {
                    backing: Backing::Alias { start },
                    ..
                },
            ) => self.find(*start),
            found => Some(found),
        }
    }

    /// Returns the region that contains an address, to be changed.
    pub(crate) fn find_mut(&mut self, address: u64) -> Option<(u64, &mut Region)> {
        let (start, (_, region)) = self.regions.range_mut(..=address).next_back()?;
        (address - start < region.bytes).then_some((*start, region))
    }

    /// Returns the number of the region that contains an address.
    pub(crate) fn number(&self, address: u64) -> Option<u64> {
        let (start, _) = self.find(address)?;
        self.regions.get(&start).map(|(number, _)| *number)
    }

    /// Takes out the region that begins at an address, if `chosen` holds for it.
    pub(crate) fn take(&mut self, start: u64, chosen: impl Fn(&Region) -> bool) -> Option<Region> {
        self.regions
            .get(&start)
            .filter(|(_, found)| chosen(found))?;
        let (_, region) = self.regions.remove(&start)?;
        if let Some(gpu) = region.gpu.filter(|gpu| *gpu != start) {
            self.regions.remove(&gpu);
        }
        Some(region)
    }

    /// Takes out what was allocated in a context.
    pub(crate) fn take_of_context(&mut self, context: usize) -> Vec<Region> {
        let of_context = |region: &Region| region.context == context && context != 0;
        let taken = self
            .regions
            .extract_if(.., |_, (_, region)| of_context(region));
        taken.map(|(_, (_, region))| region).collect()
    }

    /// Returns whether every byte of a range is in one region, or in several that the program has
    /// put one after the other, for the GPU too: mappings and registered memory.
    pub(crate) fn covers(&self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else {
            return false;
        };
        let Some((start, first)) = self.find(address) else {
            return false;
        };
        let distance = first.gpu.map(|gpu| gpu.wrapping_sub(start));
        let mut at = start + first.bytes;
        while at < end {
            match self.regions.get(&at) {
                Some((_, next))
                    if first.is_placed()
                        && next.is_placed()
                        && next.gpu.map(|gpu| gpu.wrapping_sub(at)) == distance =>
                {
                    at += next.bytes;
                }
                _ => return false,
            }
        }
        true
    }

    /// Returns whether any byte of a range is in a region.
    pub(crate) fn overlaps(&self, start: u64, bytes: u64) -> bool {
        let before = self
            .regions
            .range(..start.saturating_add(bytes))
            .next_back();
        before.is_some_and(|(at, (_, region))| at + region.bytes > start)
    }

    /// Returns the first addresses of the mappings of `cuMemMap` that make up a range, which
    /// contains whole mappings and nothing else.
    pub(super) fn whole_mappings(&self, start: u64, bytes: u64) -> Answer<Vec<u64>> {
        let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let mut starts = Vec::new();
        let mut at = start;
        while at < end {
            match self.regions.get(&at) {
                Some((
                    _,
                    Region {
                        bytes,
                        backing: Backing::Mapped(_),
                        ..
                    },
                )) => {
                    starts.push(at);
                    at += bytes;
                }
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        match at == end && !starts.is_empty() {
            true => Ok(starts),
            false => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns whether an address is in a reservation.
    pub(crate) fn is_reserved(&self, address: u64) -> bool {
        self.reservation(address).is_some()
    }

    /// Returns first address and size of the reservation that contains an address.
    pub(super) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (start, bytes) = self.reserved.range(..=address).next_back()?;
        (address - start < *bytes).then_some((*start, *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(gpu: Option<u64>, host: Option<u64>, bytes: u64) -> Region {
        Region {
            bytes,
            gpu,
            host,
            context: 0,
            flags: 0,
            backing: Backing::Registered(None),
        }
    }

    #[test]
    fn interior_addresses_lead_to_their_region_and_others_to_none() {
        let mut regions = Regions::default();
        regions.insert(region(Some(0x1000), None, 0x100));
        regions.insert(region(Some(0x3000), None, 1));
        let start = |address| regions.find(address).map(|(start, _)| start);
        assert_eq!(start(0xfff), None);
        assert_eq!(start(0x1000), Some(0x1000));
        assert_eq!(start(0x10ff), Some(0x1000));
        assert_eq!(start(0x1100), None);
        assert_eq!(start(0x3000), Some(0x3000));
        assert_eq!(start(u64::MAX), None);
        assert_ne!(regions.number(0x1000), regions.number(0x3000));
    }

    #[test]
    fn memory_with_two_addresses_is_found_at_both_and_goes_at_once() {
        let mut regions = Regions::default();
        assert_eq!(
            regions.insert(region(Some(0x8000), Some(0x2000), 64)),
            0x2000
        );
        assert_eq!(
            regions.original(0x8010).map(|(start, _)| start),
            Some(0x2000)
        );
        assert_eq!(regions.number(0x8001), regions.number(0x2001));
        assert!(regions.take(0x2000, |_| false).is_none());
        assert!(regions.take(0x2000, |_| true).is_some());
        assert!(regions.find(0x8000).is_none());
    }

    #[test]
    fn memory_of_a_context_ends_with_it() {
        let mut regions = Regions::default();
        for (at, context) in [(0x1000, 1), (0x2000, 2), (0x3000, 0)] {
            let made = region(Some(at), None, 16);
            regions.insert(Region { context, ..made });
        }
        assert_eq!(regions.take_of_context(1).len(), 1);
        assert!(regions.take_of_context(0).is_empty());
        assert!(regions.find(0x1000).is_none());
        assert!(regions.find(0x2000).is_some());
    }

    #[test]
    fn a_range_is_covered_by_neighbours_but_not_across_a_gap() {
        let mut regions = Regions::default();
        for (at, bytes) in [(0x1000, 0x1000), (0x2000, 0x1000), (0x4000, 0x1000)] {
            regions.insert(region(Some(at), None, bytes));
        }
        assert!(regions.covers(0x1800, 0x1800));
        assert!(!regions.covers(0x1800, 0x1801));
        assert!(!regions.covers(0x3000, 1));
        assert!(!regions.covers(0x1000, u64::MAX));
        assert!(regions.overlaps(0x2fff, 0x1001));
        assert!(!regions.overlaps(0x3000, 0x1000));
    }
}
