//! The MSI-X table of a PCI function: its pages are not memory for guests.

use causeway_host_vfio::{AccessError, Area, Device, RegionIndex};

/// Offset of the status register (PCI Local Bus Specification 3.0, 6.2.3).
const STATUS: u64 = 0x06;
/// Bit of the status register: the function has a list of capabilities.
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Offset of the first capability.
const CAPABILITIES: u64 = 0x34;
/// Capability ID of MSI-X (6.8.2).
const MSIX: u8 = 0x11;
/// Bytes of an entry of the table.
const ENTRY_BYTES: u64 = 16;
/// Maximum number of capabilities that fit behind the header, 4 bytes each.
const CAPABILITIES_MAX: usize = 48;

/// Returns the areas of BAR number `bar` that hold the device's MSI-X table or its pending bits;
/// none if they are in other BARs, or if the device has no MSI-X.
///
/// # Errors
/// [`AccessError`] if the device's configuration space cannot be read.
pub(crate) fn msix_areas(device: &Device, bar: u8) -> Result<Vec<Area>, AccessError> {
    let Some(at) = find(device, MSIX)? else {
        return Ok(Vec::new());
    };
    let config = RegionIndex::Config;
    let entries = u64::from(device.read_u16(config, at + 2)? & 0x7ff) + 1;
    let places = [
        (device.read_u32(config, at + 4)?, entries * ENTRY_BYTES),
        (device.read_u32(config, at + 8)?, entries.div_ceil(64) * 8),
    ];
    // The low three bits say which BAR.
    let behind = places.iter().filter(|(word, _)| *word as u8 & 7 == bar);
    let area = |(word, bytes): &(u32, u64)| Area {
        offset: u64::from(word & !7),
        bytes: *bytes,
    };
    Ok(behind.map(area).collect())
}

/// Returns the offset of the capability `id` in configuration space; `None` if the device lacks it.
fn find(device: &Device, id: u8) -> Result<Option<u64>, AccessError> {
    let config = RegionIndex::Config;
    if device.read_u16(config, STATUS)? & STATUS_CAPABILITIES == 0 {
        return Ok(None);
    }
    let mut at = u64::from(device.read_u8(config, CAPABILITIES)? & !3);
    // A list that is longer is a ring.
    for _ in 0..CAPABILITIES_MAX {
        if at == 0 {
            break;
        }
        if device.read_u8(config, at)? == id {
            return Ok(Some(at));
        }
        at = u64::from(device.read_u8(config, at + 1)? & !3);
    }
    Ok(None)
}
