//! BARs of a device: what they are, where they go, and which pages of them the guest reaches
//! without an exit.

use causeway_host_vfio::{AccessError, Area, BARS, Device, Region, RegionIndex};

use super::capabilities::MsixPlace;
use super::header;
use crate::pci::{BarAllocator, MemoryBar};

/// Base address register bit 0: ports.
const PORTS: u32 = 1 << 0;
/// Base address register bits 2:1: type.
const TYPE: u32 = 3 << 1;
/// The type of a register of 64 bits.
const TYPE_WIDE: u32 = 2 << 1;
/// Base address register bit 3: reads have no side effects.
const PREFETCHABLE: u32 = 1 << 3;
/// Smallest memory BAR.
const BAR_BYTES_MIN: u64 = 16;
/// Pages of memory slots.
const PAGE_BYTES: u64 = 4096;

/// A memory BAR of a passed-through device: as the guest will see it, and as VFIO offers it.
#[derive(Clone, Debug)]
pub struct BarPlan {
    /// The BAR that the guest sees: its number, size and type.
    pub register: MemoryBar,
    /// The VFIO region through which the VMM accesses the BAR. It may be smaller than the BAR that
    /// the guest sees.
    pub region: Region,
}

/// Returns the memory BARs of `device`. BARs of I/O ports are left out: guests cannot use them.
///
/// # Errors
/// [`AccessError`] if the device's configuration space cannot be read.
pub fn plan(device: &Device) -> Result<Vec<BarPlan>, AccessError> {
    let mut plans = Vec::new();
    let mut indices = 0..BARS;
    while let Some(index) = indices.next() {
        let offset = header::BARS + 4 * u64::from(index);
        let flags = device.read_u32(RegionIndex::Config, offset)?;
        let wide = flags & (PORTS | TYPE) == TYPE_WIDE && index + 1 < BARS;
        if let Some(region) = device
            .region(RegionIndex::Bar(index))
            .filter(|_| flags & PORTS == 0)
        {
            plans.push(BarPlan {
                register: MemoryBar {
                    index: index.into(),
                    bytes: register_bytes(region),
                    wide,
                    prefetchable: flags & PREFETCHABLE != 0,
                },
                region: region.clone(),
            });
        }
        if wide {
            indices.next();
        }
    }
    Ok(plans)
}

/// Returns the size that a BAR register shows for a region: a power of two.
fn register_bytes(region: &Region) -> u64 {
    let bytes = region.bytes.max(BAR_BYTES_MIN);
    bytes.checked_next_power_of_two().unwrap_or(1 << 63)
}

/// Chooses a guest-physical address for each BAR of `plans`, and returns the addresses in the order
/// of `plans`. A BAR with a 32-bit address gets one from `low`; a BAR with a 64-bit address gets
/// one from `high` or, if `high` has no room, from `low`. Large BARs are placed first.
///
/// # Errors
/// The first BAR for which no address is free.
pub fn place(
    plans: &[BarPlan],
    low: &mut BarAllocator,
    high: &mut BarAllocator,
) -> Result<Vec<u64>, MemoryBar> {
    let mut order: Vec<_> = plans.iter().map(|plan| plan.register).enumerate().collect();
    order.sort_by_key(|(_, register)| std::cmp::Reverse(register.bytes));
    let mut places = vec![0; plans.len()];
    for (index, register) in order {
        // A page of its own, so that there can be a slot.
        let bytes = register.bytes.max(PAGE_BYTES);
        let above = register.wide.then(|| high.place(bytes)).flatten();
        places[index] = above.or_else(|| low.place(bytes)).ok_or(register)?;
    }
    Ok(places)
}

/// Returns the parts of a BAR, `region`, that the guest can reach through memory slots, without
/// exits. These are the whole pages that VFIO can map, except pages that contain the MSI-X table or
/// pending bits, which `msix` locates.
pub fn mapped(region: &Region, msix: Option<&MsixPlace>) -> Vec<Area> {
    let kept = kept_away(region.index, msix);
    let mut areas = Vec::new();
    // A memory slot cannot be write-only.
    let mappable = region.mappable.iter().filter(|_| region.readable);
    for area in mappable {
        let end = area.offset.saturating_add(area.bytes).min(region.bytes) & !(PAGE_BYTES - 1);
        let mut start = area.offset.next_multiple_of(PAGE_BYTES);
        for hole in &kept {
            let first = hole.offset & !(PAGE_BYTES - 1);
            if first < end && hole.offset + hole.bytes > start {
                push(&mut areas, start, first);
                start = (hole.offset + hole.bytes).next_multiple_of(PAGE_BYTES);
            }
        }
        push(&mut areas, start, end);
    }
    areas
}

/// Returns the emulated parts of the region, in order.
fn kept_away(index: RegionIndex, msix: Option<&MsixPlace>) -> Vec<Area> {
    let places = msix.into_iter().flat_map(|msix| [msix.table, msix.pending]);
    let own = places.filter(|(bar, _)| RegionIndex::Bar(*bar) == index);
    let mut areas: Vec<_> = own.map(|(_, area)| area).collect();
    areas.sort_by_key(|area| area.offset);
    areas
}

fn push(areas: &mut Vec<Area>, start: u64, end: u64) {
    if start < end {
        areas.push(Area {
            offset: start,
            bytes: end - start,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::Layout;

    fn region(bytes: u64, mappable: &[(u64, u64)]) -> Region {
        Region {
            index: RegionIndex::Bar(2),
            bytes,
            readable: true,
            writable: true,
            mappable: mappable
                .iter()
                .map(|(offset, bytes)| Area {
                    offset: *offset,
                    bytes: *bytes,
                })
                .collect(),
            msix_mappable: true,
            file_offset: 0,
        }
    }

    fn ranges(areas: &[Area]) -> Vec<(u64, u64)> {
        areas.iter().map(|area| (area.offset, area.bytes)).collect()
    }

    fn msix(table: (u8, u64), pending: (u8, u64)) -> MsixPlace {
        let place = |(bar, offset), bytes| (bar, Area { offset, bytes });
        MsixPlace {
            offset: 0x50,
            vectors: 64,
            table: place(table, 1024),
            pending: place(pending, 8),
        }
    }

    #[test]
    fn pages_with_the_table_stay_out() {
        let whole = region(0x8000, &[(0, 0x8000)]);
        assert_eq!(ranges(&mapped(&whole, None)), [(0, 0x8000)]);
        for (table, pending, expected) in [
            (
                (2, 0x2000),
                (2, 0x3000),
                vec![(0, 0x2000), (0x4000, 0x4000)],
            ),
            (
                (2, 0x2800),
                (2, 0x2400),
                vec![(0, 0x2000), (0x3000, 0x5000)],
            ),
            // Across two pages.
            ((2, 0x2e00), (0, 0), vec![(0, 0x2000), (0x4000, 0x4000)]),
            ((2, 0), (2, 0x7000), vec![(0x1000, 0x6000)]),
            ((0, 0), (1, 0), vec![(0, 0x8000)]),
        ] {
            let place = msix(table, pending);
            assert_eq!(ranges(&mapped(&whole, Some(&place))), expected, "{place:?}");
        }
        let page = region(0x1000, &[(0, 0x1000)]);
        assert!(mapped(&page, Some(&msix((2, 0), (2, 0x800)))).is_empty());
    }

    #[test]
    fn sparse_regions_are_mapped_in_whole_pages_only() {
        let sparse = region(
            0x10000,
            &[(0x1000, 0x2000), (0x4800, 0x2000), (0x8000, 0x800)],
        );
        assert_eq!(
            ranges(&mapped(&sparse, None)),
            [(0x1000, 0x2000), (0x5000, 0x1000)]
        );
        let place = msix((2, 0x2000), (2, 0x5000));
        assert_eq!(ranges(&mapped(&sparse, Some(&place))), [(0x1000, 0x1000)]);
        let small = region(0x100, &[(0, 0x100)]);
        assert!(mapped(&small, None).is_empty());
        let beyond = region(0x1000, &[(0, u64::MAX)]);
        assert_eq!(ranges(&mapped(&beyond, None)), [(0, 0x1000)]);
        let mut unreadable = region(0x1000, &[(0, 0x1000)]);
        unreadable.readable = false;
        assert!(mapped(&unreadable, None).is_empty());
    }

    #[test]
    fn large_bars_choose_first_and_wide_ones_lie_high() {
        let bar = |index, bytes, wide| BarPlan {
            register: MemoryBar {
                index,
                bytes,
                wide,
                prefetchable: wide,
            },
            region: region(bytes, &[]),
        };
        let layout = Layout::new(48, 1 << 30, 64 << 30).unwrap();
        let layout = layout.with_high_window(1 << 30);
        let (mut low, mut high) = (layout.low_bars(), layout.high_bars());
        let plans = [
            bar(0, 16, false),
            bar(1, 1 << 20, false),
            bar(2, 64 << 20, true),
        ];
        let places = place(&plans, &mut low, &mut high).unwrap();
        assert!(places[1].is_multiple_of(1 << 20) && places[0] >= places[1] + (1 << 20));
        assert!(places[0].is_multiple_of(4096) && places[2] >= 320 << 30);
        let refused = place(&[bar(3, 1 << 30, false)], &mut low, &mut high);
        assert_eq!(refused.unwrap_err().index, 3);
    }
}
