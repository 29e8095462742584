//! The BAR (base address register) whose memory is partitioned, and its usable parts.

use std::ptr::NonNull;

use causeway_host_vfio::{
    AccessError, Address, Area, BARS, Device, MapError, Mapping, Region, RegionIndex,
};
use causeway_memory::PAGE_BYTES;

use crate::capability;

/// First base address register in configuration space; each has 32 bits.
const BASE_ADDRESS: u64 = 0x10;
/// Bit of a base address register: the BAR has I/O ports (PCI Local Bus Specification 3.0,
/// 6.2.5.1).
const IO_PORTS: u32 = 1 << 0;
/// Bit of a base address register: the BAR has memory, of which reads have no side effects.
const PREFETCHABLE: u32 = 1 << 3;

/// The reason for which the memory of a device's BAR cannot be partitioned.
#[derive(Debug, thiserror::Error)]
pub enum BarError {
    /// The device does not have the chosen BAR.
    #[error(
        "device {address} has no BAR {bar}: it has {}; choose a BAR that exists with \
         --gpu vfio:{address},bar=N",
        list(there)
    )]
    Absent {
        /// PCI address of the device.
        address: Address,
        /// Number of the chosen BAR.
        bar: u8,
        /// Numbers of the BARs that the device has.
        there: Vec<u8>,
    },
    /// The BAR has I/O ports, not memory.
    #[error(
        "BAR {bar} of device {address} has I/O ports, not memory: choose another BAR with \
         --gpu vfio:{address},bar=N"
    )]
    NotMemory {
        /// PCI address of the device.
        address: Address,
        /// Number of the BAR.
        bar: u8,
    },
    /// The BAR is smaller than a page.
    #[error(
        "BAR {bar} of device {address} has {bytes} bytes, less than a page of {PAGE_BYTES} bytes: \
         choose another BAR with --gpu vfio:{address},bar=N"
    )]
    Small {
        /// PCI address of the device.
        address: Address,
        /// Number of the BAR.
        bar: u8,
        /// Size of the BAR in bytes.
        bytes: u64,
    },
    /// The Linux kernel maps no whole page of the BAR for reading and writing.
    #[error(
        "BAR {bar} of device {address} has no whole page that the Linux kernel maps for reading \
         and writing: choose another BAR with --gpu vfio:{address},bar=N"
    )]
    NotMappable {
        /// PCI address of the device.
        address: Address,
        /// Number of the BAR.
        bar: u8,
    },
    /// No BAR was chosen, and no BAR of the device is prefetchable memory.
    #[error(
        "device {address} has no BAR of prefetchable memory that can be mapped: if one of its BARs \
         ({}) is memory, not registers, choose this BAR with --gpu vfio:{address},bar=N",
        list(there)
    )]
    NoMemory {
        /// PCI address of the device.
        address: Address,
        /// Numbers of the BARs that the device has.
        there: Vec<u8>,
    },
    /// The device's configuration space, which describes the BARs, cannot be read.
    #[error("cannot read the BARs of device {address} from its configuration space")]
    Unreadable {
        /// PCI address of the device.
        address: Address,
        /// The error of the access to configuration space.
        source: AccessError,
    },
    /// The Linux kernel does not map the BAR.
    #[error("cannot map BAR {bar} of device {address}")]
    Map {
        /// PCI address of the device.
        address: Address,
        /// Number of the BAR.
        bar: u8,
        /// The error of the mapping.
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

/// The usable parts of a BAR, mapped into this process. The device is given back to the host when
/// this and all partitions are dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    number: u8,
    /// Areas with their mappings, in order. Unmapped before the device is given back.
    areas: Vec<(Area, Mapping)>,
    device: Device,
}

impl Bar {
    /// Maps the usable areas of BAR `wanted`, or of the largest BAR of prefetchable memory if
    /// `wanted` is `None`.
    ///
    /// # Errors
    /// The errors of [`choose`], and [`BarError::Map`] if the Linux kernel refuses to map an area.
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

    /// Returns the number of the BAR, 0 to 5.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the device that has this BAR.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the usable areas of the BAR, by increasing offset.
    pub fn areas(&self) -> impl Iterator<Item = Area> + '_ {
        self.areas.iter().map(|(area, _)| *area)
    }

    /// Returns the total size of all usable areas in bytes.
    pub fn bytes(&self) -> u64 {
        self.areas().map(|area| area.bytes).sum()
    }

    /// Returns the address in this process of `offset` in the BAR; `None` if the `bytes` bytes from
    /// there do not lie in one usable area.
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
        log::info!("device {} is given back to the host", self.device.address());
    }
}

/// Returns the number of a BAR and its usable areas: whole pages without the MSI-X table. The BAR
/// is `wanted`, or the largest BAR of prefetchable memory if `wanted` is `None`.
///
/// # Errors
/// * [`BarError::NoMemory`]: `wanted` is `None`, and no BAR is prefetchable memory.
/// * [`BarError::Absent`]: the device has no BAR `wanted`.
/// * [`BarError::NotMemory`], [`BarError::Small`], [`BarError::NotMappable`]: the BAR `wanted` has
///   I/O ports, is smaller than a page, or has no page that can be mapped.
/// * [`BarError::Unreadable`]: the device's configuration space cannot be read.
pub fn choose(device: &Device, wanted: Option<u8>) -> Result<(u8, Vec<Area>), BarError> {
    let address = device.address();
    let Some(bar) = wanted else {
        let there = bars(device);
        let mut usable = Vec::new();
        for bar in there.iter().copied() {
            if register(device, bar)? & (IO_PORTS | PREFETCHABLE) == PREFETCHABLE
                && let Ok(areas) = usable_areas(device, bar)
            {
                usable.push((bar, areas));
            }
        }
        let bytes = |areas: &[Area]| areas.iter().map(|area| area.bytes).sum::<u64>();
        // Of several that are as large, `max_by_key` returns the last, which is the first BAR.
        let largest = usable
            .into_iter()
            .rev()
            .max_by_key(|(_, areas)| bytes(areas));
        return largest.ok_or(BarError::NoMemory { address, there });
    };
    let areas = usable_areas(device, bar)?;
    if register(device, bar)? & PREFETCHABLE == 0 {
        log::warn!(
            "BAR {bar} of device {address} is not prefetchable, so this BAR may have registers, \
             not memory: Causeway fills it with zeros and guests write to it; if it has registers, \
             choose another BAR with --gpu vfio:{address},bar=N"
        );
    }
    Ok((bar, areas))
}

/// Returns the numbers of the BARs that a device has.
fn bars(device: &Device) -> Vec<u8> {
    let is_there = |bar: &u8| device.region(RegionIndex::Bar(*bar)).is_some();
    (0..BARS).filter(is_there).collect()
}

/// Returns the usable areas of a BAR: whole pages that can be mapped, without the MSI-X table.
fn usable_areas(device: &Device, bar: u8) -> Result<Vec<Area>, BarError> {
    let address = device.address();
    let region = device.region(RegionIndex::Bar(bar));
    let region = region.ok_or_else(|| BarError::Absent {
        address,
        bar,
        there: bars(device),
    })?;
    if register(device, bar)? & IO_PORTS != 0 {
        return Err(BarError::NotMemory { address, bar });
    }
    if region.bytes < PAGE_BYTES {
        return Err(BarError::Small {
            address,
            bar,
            bytes: region.bytes,
        });
    }
    let reserved = capability::msix_areas(device, bar)
        .map_err(|source| BarError::Unreadable { address, source })?;
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

/// Returns the mappable areas, cut to whole pages, without pages that overlap `reserved`.
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
