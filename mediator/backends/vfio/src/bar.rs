//! Which BAR is lent, and which parts of it.

use std::ptr::NonNull;

use causeway_host_vfio::{
    AccessError, Address, Area, BARS, Device, MapError, Mapping, Region, RegionIndex,
};
use causeway_memory::PAGE_BYTES;

use crate::capability;

/// First base address register in configuration space; each has 32 bits.
const BASE_ADDRESS: u64 = 0x10;
/// Base address register: it is of I/O ports (PCI Local Bus Specification 3.0, 6.2.5.1).
const IO_PORTS: u32 = 1 << 0;
/// Base address register: memory, of which reads have no side effects.
const PREFETCHABLE: u32 = 1 << 3;

/// Why no BAR of a device can be lent.
#[derive(Debug, thiserror::Error)]
pub enum BarError {
    /// The one that was asked for is not there.
    #[error("device {address} has no BAR {bar}: it has {}", list(there))]
    Absent {
        /// The device.
        address: Address,
        /// What was asked for.
        bar: u8,
        /// Those that it has.
        there: Vec<u8>,
    },
    /// It is not memory.
    #[error("BAR {bar} of device {address} is I/O ports, not memory, so nothing of it can be lent")]
    NotMemory {
        /// The device.
        address: Address,
        /// The BAR.
        bar: u8,
    },
    /// There is not one page of it.
    #[error(
        "BAR {bar} of device {address} has {bytes} bytes, and memory is lent in pages of {PAGE_BYTES}"
    )]
    Small {
        /// The device.
        address: Address,
        /// The BAR.
        bar: u8,
        /// What it has.
        bytes: u64,
    },
    /// The kernel keeps it to itself, or to one kind of access.
    #[error(
        "the kernel lets no whole page of BAR {bar} of device {address} be mapped for reading and writing"
    )]
    NotMappable {
        /// The device.
        address: Address,
        /// The BAR.
        bar: u8,
    },
    /// None was asked for, and none is clearly memory.
    #[error(
        "device {address} has no BAR of prefetchable memory that can be mapped; if one of its BARs ({}) is memory nevertheless, not registers, say so with bar=N",
        list(there)
    )]
    NoMemory {
        /// The device.
        address: Address,
        /// The BARs that it has.
        there: Vec<u8>,
    },
    /// Configuration space cannot be read.
    #[error("cannot find out what the BARs of device {address} are")]
    Unreadable {
        /// The device.
        address: Address,
        /// Why.
        source: AccessError,
    },
    /// It was not mapped.
    #[error("cannot map BAR {bar} of device {address}")]
    Map {
        /// The device.
        address: Address,
        /// The BAR.
        bar: u8,
        /// Why.
        source: MapError,
    },
}

fn list(bars: &[u8]) -> String {
    if bars.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<_> = bars.iter().map(|bar| format!("BAR {bar}")).collect();
    words.join(", ")
}

/// A BAR in this process, as far as it is lent. The device is given back when this is dropped, and everything lent of it.
#[derive(Debug)]
pub(crate) struct Bar {
    number: u8,
    /// Areas with their mappings, in order. Unmapped before the device is given back.
    areas: Vec<(Area, Mapping)>,
    device: Device,
}

impl Bar {
    /// Maps BAR `wanted`, or the largest that is prefetchable memory.
    pub fn map(device: Device, wanted: Option<u8>) -> Result<Self, BarError> {
        let (number, areas) = choose(&device, wanted)?;
        let index = RegionIndex::Bar(number);
        let map = |area: Area| {
            let mapping = device.map(index, area.offset, area.bytes);
            mapping.map(|mapping| (area, mapping))
        };
        let mapped: Result<Vec<_>, _> = areas.into_iter().map(map).collect();
        let areas = mapped.map_err(|source| BarError::Map {
            address: device.address(),
            bar: number,
            source,
        })?;
        Ok(Self {
            number,
            areas,
            device,
        })
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What is lent of it, in order.
    pub fn areas(&self) -> impl Iterator<Item = Area> + '_ {
        self.areas.iter().map(|(area, _)| *area)
    }

    /// Bytes that are lent, all together.
    pub fn bytes(&self) -> u64 {
        self.areas().map(|area| area.bytes).sum()
    }

    /// Where this process has the byte at `offset`, if `[offset, offset + bytes)` is in one area.
    pub fn at(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let mut areas = self.areas.iter();
        let (area, mapping) = areas.find(|(area, _)| area.contains(offset, bytes))?;
        let base = mapping.as_ptr().as_ptr();
        // Within the mapping, so not null.
        NonNull::new(base.wrapping_add((offset - area.offset) as usize))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        log::info!("device {} is given back", self.device.address());
    }
}

/// The BAR that was asked for, or the largest that is surely memory; and what of it can be lent: whole pages, without the MSI-X
/// table.
///
/// # Errors
/// [`BarError`].
pub fn choose(device: &Device, wanted: Option<u8>) -> Result<(u8, Vec<Area>), BarError> {
    let address = device.address();
    let there = || (0..BARS).filter(|bar| device.region(RegionIndex::Bar(*bar)).is_some());
    let Some(bar) = wanted else {
        let mut best: Option<(u64, u8, Vec<Area>)> = None;
        for bar in there() {
            let prefetchable = register(device, bar)? & (IO_PORTS | PREFETCHABLE) == PREFETCHABLE;
            let Some(areas) = prefetchable.then(|| lendable(device, bar).ok()).flatten() else {
                continue;
            };
            let bytes = areas.iter().map(|area| area.bytes).sum();
            if best.as_ref().is_none_or(|(most, ..)| bytes > *most) {
                best = Some((bytes, bar, areas));
            }
        }
        let best = best.map(|(_, bar, areas)| (bar, areas));
        return best.ok_or_else(|| BarError::NoMemory {
            address,
            there: there().collect(),
        });
    };
    let areas = lendable(device, bar)?;
    if register(device, bar)? & PREFETCHABLE == 0 {
        log::warn!(
            "BAR {bar} of device {address} is not prefetchable: if it is registers, not memory, filling it with zeros and lending it makes the device do whatever they mean"
        );
    }
    Ok((bar, areas))
}

/// What of a BAR can be lent: whole pages that can be mapped, without the MSI-X table.
fn lendable(device: &Device, bar: u8) -> Result<Vec<Area>, BarError> {
    let address = device.address();
    let Some(region) = device.region(RegionIndex::Bar(bar)) else {
        let there = (0..BARS).filter(|bar| device.region(RegionIndex::Bar(*bar)).is_some());
        let there = there.collect();
        return Err(BarError::Absent {
            address,
            bar,
            there,
        });
    };
    if register(device, bar)? & IO_PORTS != 0 {
        return Err(BarError::NotMemory { address, bar });
    }
    if region.bytes < PAGE_BYTES {
        let bytes = region.bytes;
        return Err(BarError::Small {
            address,
            bar,
            bytes,
        });
    }
    let reserved = capability::msix_areas(device, bar);
    let reserved = reserved.map_err(|source| BarError::Unreadable { address, source })?;
    let areas = whole_pages(region, &reserved);
    if areas.is_empty() || !region.readable || !region.writable {
        return Err(BarError::NotMappable { address, bar });
    }
    Ok(areas)
}

fn register(device: &Device, bar: u8) -> Result<u32, BarError> {
    let value = device.read_u32(RegionIndex::Config, BASE_ADDRESS + 4 * u64::from(bar));
    value.map_err(|source| BarError::Unreadable {
        address: device.address(),
        source,
    })
}

/// Mappable areas, cut to whole pages, without pages that have something reserved in them.
fn whole_pages(region: &Region, reserved: &[Area]) -> Vec<Area> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for area in &region.mappable {
        let end = area.offset.saturating_add(area.bytes).min(region.bytes);
        let start = area.offset.checked_next_multiple_of(PAGE_BYTES);
        parts.extend(start.map(|start| (start, end / PAGE_BYTES * PAGE_BYTES)));
    }
    for hole in reserved {
        let start = hole.offset / PAGE_BYTES * PAGE_BYTES;
        let end = hole.offset.saturating_add(hole.bytes);
        let end = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
        let cut = |(from, to): (u64, u64)| [(from, to.min(start)), (from.max(end), to)];
        parts = parts.into_iter().flat_map(cut).collect();
    }
    let whole = parts.into_iter().filter(|(start, end)| start < end);
    let area = |(offset, end): (u64, u64)| Area {
        offset,
        bytes: end - offset,
    };
    whole.map(area).collect()
}
