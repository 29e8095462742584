//! The list of capabilities, rebuilt: each that is shown stays where the device has it, and links
//! lead past the others.
//!
//! | capability | what the guest sees |
//! |---|---|
//! | power management (01) | D0 and D3hot, which do nothing when it chooses them; no wake-up |
//! | MSI (05), MSI-X (11) | what the device has, emulated: the host's kernel programs the device |
//! | vendor-specific (09) | the device's, loads and stores |
//! | PCI Express (10) | the device's, read-only, as an endpoint of the root complex; no reset |
//! | others | nothing: vital product data, matters of bridges or hosts, advanced resets |
//!
//! A PCI Express device is shown as an endpoint that is part of the root complex, because the guest
//! could see no link above the device.

use causeway_host_vfio::{AccessError, Area, Device, InterruptKind, RegionIndex};

use super::filter::Owner::{Fixed, Guest, Passed, Shown};
use super::filter::{Filter, Patch, patch};
use super::header;
use super::msi::MsiCapability;

const POWER_MANAGEMENT: u8 = 0x01;
const MSI: u8 = 0x05;
const VENDOR: u8 = 0x09;
const EXPRESS: u8 = 0x10;
const MSIX: u8 = 0x11;

/// Most capabilities that a list can have: each takes at least four bytes behind the header.
const CAPABILITIES_MAX: usize = 48;

/// PCI Bus Power Management Interface Specification 1.2, 3.2: version and initialization needs are
/// the device's, D1, D2 and wake-up events are not there. State (D0 to D3hot) is the guest's, and
/// nothing is lost by it (No_Soft_Reset).
const POWER_PATCHES: [Patch; 3] = [
    patch(2, 0x0027, Shown),
    patch(4, 0x0003, Guest(0)),
    patch(4, 0x0008, Fixed(0x0008)),
];

/// PCI Express Base Specification 5.0, 7.5.3: capabilities without the port's type, which is that
/// of an endpoint within the root complex; device capabilities without the reset of the function
/// (bit 28), device control and status. Registers of link, slot and root are not there for such an
/// endpoint.
const EXPRESS_PATCHES: [Patch; 6] = [
    patch(2, 0x3e0f, Shown),
    patch(2, 0x00f0, Fixed(0x0090)),
    patch(4, 0xffff, Shown),
    patch(6, 0xefff, Shown),
    patch(8, 0x7fff, Shown),
    patch(10, 0xffff, Shown),
];

/// The same, from version 2 on: more device capabilities, device control.
const EXPRESS_2_PATCHES: [Patch; 3] = [
    patch(0x24, 0xffff, Shown),
    patch(0x26, 0xffff, Shown),
    patch(0x28, 0xffff, Shown),
];

/// Where a device's MSI-X capability, its MSI-X table and its pending bits are (PCI Local Bus
/// Specification 3.0, 6.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixPlace {
    /// Offset of the capability in configuration space.
    pub offset: usize,
    /// Number of vectors.
    pub vectors: u16,
    /// Number of the BAR that contains the MSI-X table, and the table's offset and size in that
    /// BAR.
    pub table: (u8, Area),
    /// Number of the BAR that contains the pending bits, and their offset and size in that BAR.
    pub pending: (u8, Area),
}

/// The interrupt capabilities of a device, which the VMM emulates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The MSI capability; `None` if the device has none that the VMM can use.
    pub msi: Option<MsiCapability>,
    /// The MSI-X capability; `None` if the device has none that the VMM can use.
    pub msix: Option<MsixPlace>,
}

/// A capability of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: u8,
    offset: u8,
}

/// Adds those capabilities of `device` that the guest may see to `filter`, the device's
/// configuration space for the guest. Returns the capabilities for interrupts among them.
///
/// # Errors
/// [`AccessError`] if the device's configuration space cannot be read.
pub fn add(filter: &mut Filter, device: &Device) -> Result<Capabilities, AccessError> {
    let mut found = Capabilities::default();
    let mut link = header::CAPABILITIES;
    let entries = list(device)?;
    for (index, entry) in entries.iter().enumerate() {
        if entries[..index]
            .iter()
            .any(|e| e.id == entry.id && e.id != VENDOR)
        {
            log::debug!(
                "a second capability {:#x} of {} is not shown",
                entry.id,
                device.address()
            );
            continue;
        }
        if !show(filter, device, *entry, &entries, &mut found)? {
            continue;
        }
        let offset = usize::from(entry.offset);
        filter.own(offset, 0xffff, Fixed(entry.id.into()));
        set_link(filter, link, entry.offset);
        link = offset + 1;
        let status = header::STATUS.into();
        filter.own(status, header::STATUS_CAPABILITIES, Fixed(0xffff));
    }
    Ok(found)
}

/// Makes the link at `link` lead to `to`.
fn set_link(filter: &mut Filter, link: usize, to: u8) {
    let shift = 8 * (link as u32 & 1);
    filter.own(link & !1, 0xff << shift, Fixed(u16::from(to) << shift));
}

/// Returns the device's list of capabilities, up to an invalid link.
fn list(device: &Device) -> Result<Vec<Entry>, AccessError> {
    let config = RegionIndex::Config;
    let mut entries = Vec::<Entry>::new();
    if device.read_u16(config, header::STATUS.into())? & header::STATUS_CAPABILITIES == 0 {
        return Ok(entries);
    }
    let mut next = device.read_u8(config, header::CAPABILITIES as u64)? & !3;
    while next >= header::END && entries.len() < CAPABILITIES_MAX {
        if entries.iter().any(|entry| entry.offset == next) {
            log::debug!(
                "the list of capabilities of {} has a circle",
                device.address()
            );
            break;
        }
        let [id, link] = device.read_u16(config, next.into())?.to_le_bytes();
        entries.push(Entry { id, offset: next });
        next = link & !3;
    }
    Ok(entries)
}

/// Adds a capability to `filter`, and returns true, if the guest may see it.
fn show(
    filter: &mut Filter,
    device: &Device,
    entry: Entry,
    all: &[Entry],
    found: &mut Capabilities,
) -> Result<bool, AccessError> {
    let offset = usize::from(entry.offset);
    match entry.id {
        POWER_MANAGEMENT => filter.apply(offset, &POWER_PATCHES),
        VENDOR => show_vendor(filter, device, entry, all)?,
        EXPRESS => {
            filter.apply(offset, &EXPRESS_PATCHES);
            let version = device.read_u16(RegionIndex::Config, u64::from(entry.offset) + 2)? & 0xf;
            if version >= 2 {
                filter.apply(offset, &EXPRESS_2_PATCHES);
            }
        }
        MSI => {
            found.msi = MsiCapability::of(device, entry.offset)?;
            let Some(msi) = found.msi else {
                return Ok(false);
            };
            filter.apply(offset, &msi.patches());
        }
        MSIX => {
            found.msix = msix(device, entry.offset)?;
            let Some(msix) = found.msix else {
                return Ok(false);
            };
            filter.apply(offset, &msix_patches(&msix));
        }
        id => {
            log::debug!("capability {id:#x} of {} is not shown", device.address());
            return Ok(false);
        }
    }
    Ok(true)
}

/// Passes on what is behind ID, link and length, up to the next capability at most.
fn show_vendor(
    filter: &mut Filter,
    device: &Device,
    entry: Entry,
    all: &[Entry],
) -> Result<(), AccessError> {
    let length = device.read_u8(RegionIndex::Config, u64::from(entry.offset) + 2)?;
    let following = all.iter().map(|e| usize::from(e.offset));
    let limit = following
        .filter(|o| *o > entry.offset.into())
        .min()
        .unwrap_or(256);
    let start = usize::from(entry.offset);
    let end = (start + usize::from(length)).min(limit);
    filter.own(start + 2, 0x00ff, Fixed(length.into()));
    for at in start + 3..end {
        filter.own(at & !1, 0xff << (8 * (at as u32 & 1)), Passed);
    }
    Ok(())
}

/// Returns the device's MSI-X structures; `None` if they are invalid or VFIO has none.
fn msix(device: &Device, offset: u8) -> Result<Option<MsixPlace>, AccessError> {
    let config = RegionIndex::Config;
    let base = u64::from(offset);
    let size = (device.read_u16(config, base + 2)? & 0x7ff) + 1;
    let info = device.interrupts(InterruptKind::Msix);
    let most = if info.eventfd { info.count } else { 0 };
    let vectors = u16::try_from(most).map_or(size, |most| most.min(size));
    let place = |word: u32, bytes| {
        let offset = u64::from(word & !7);
        ((word & 7) as u8, Area { offset, bytes })
    };
    let table_bytes = u64::from(vectors) * 16;
    let pending_bytes = u64::from(vectors).div_ceil(64) * 8;
    let msix = MsixPlace {
        offset: offset.into(),
        vectors,
        table: place(device.read_u32(config, base + 4)?, table_bytes),
        pending: place(device.read_u32(config, base + 8)?, pending_bytes),
    };
    let within = |(bar, area): (u8, Area)| {
        let region = device.region(RegionIndex::Bar(bar));
        region.is_some_and(|region| area.offset + area.bytes <= region.bytes)
    };
    let good = vectors != 0 && within(msix.table) && within(msix.pending);
    Ok(good.then_some(msix))
}

/// Returns the owners of the bits of an MSI-X capability: the guest owns enable and function mask.
fn msix_patches(msix: &MsixPlace) -> [Patch; 6] {
    let word = |(bar, area): (u8, Area)| area.offset as u32 | u32::from(bar);
    let [table, pending] = [word(msix.table), word(msix.pending)];
    let low = |word: u32| Fixed(word as u16);
    let high = |word: u32| Fixed((word >> 16) as u16);
    [
        patch(2, 0x07ff, Fixed(msix.vectors - 1)),
        patch(2, 0xc000, Guest(0)),
        patch(4, 0xffff, low(table)),
        patch(6, 0xffff, high(table)),
        patch(8, 0xffff, low(pending)),
        patch(10, 0xffff, high(pending)),
    ]
}
