//! What the device is: names, addresses and what CUDA's attributes say (NVML API Reference, "Device
//! Queries").

use crate::boundary::Out;
use crate::device::{Facts, uuid_text};

use super::code::{Answer, Code};
use super::handle::{Handle, device_call};
use super::library::put_text;

/// CUDA device attributes: clock rates in kHz, and the width of the memory's bus in bits.
const CLOCK_KHZ: u32 = 13;
const MEMORY_CLOCK_KHZ: u32 = 36;
const MEMORY_BUS_BITS: u32 = 37;

/// Bytes of [`PciInfo`] before the number of the subsystem.
const PLACE_BYTES: usize = 32;

/// `NVML_BRAND_UNKNOWN`
const UNKNOWN_BRAND: u32 = 0;
/// `NVML_DEVICE_ARCH_UNKNOWN`
const UNKNOWN_ARCHITECTURE: u32 = u32::MAX;

/// The device's place on the PCI bus, as `nvmlDeviceGetPciInfo_v3` gives it. (Versions before are
/// its first bytes.)
#[derive(Clone, Copy)]
#[repr(C)]
struct PciInfo {
    /// As `id`, with a domain of four digits.
    legacy_id: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    /// Zero: which of NVIDIA's products it is, is not known.
    device_id: u32,
    subsystem_id: u32,
    id: [u8; 32],
}

/// `nvmlPciInfoExt_v1_t`
#[derive(Clone, Copy)]
#[repr(C)]
struct PciInfoExt {
    version: u32,
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    base_class: u32,
    subclass: u32,
    id: [u8; 32],
}

/// Version of [`PciInfoExt`], as the structure has it.
const PCI_INFO_EXT_V1: u32 = 1 << 24 | size_of::<PciInfoExt>() as u32;

impl PciInfo {
    fn of(facts: &Facts) -> Self {
        let [domain, bus, device] = facts.pci();
        Self {
            legacy_id: padded(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
            domain,
            bus,
            device,
            device_id: 0,
            subsystem_id: 0,
            id: padded(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
        }
    }
}

/// Returns a text padded with zeros, and cut so that one is at its end.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let used = text.len().min(N - 1);
    bytes[..used].copy_from_slice(&text.as_bytes()[..used]);
    bytes
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Handle, name: Out<u8>, room: u32) -> u32 {
    device_call(device, |facts| put_text(name, room, facts.name()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Handle, uuid: Out<u8>, room: u32) -> u32 {
    device_call(device, |facts| {
        put_text(uuid, room, &uuid_text(facts.uuid()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, info: Out<PciInfo>) -> u32 {
    device_call(device, |facts| Ok(info.set(PciInfo::of(facts))?))
}

/// The base class and the subclass are those of a 3D controller.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfoExt(device: Handle, info: Out<PciInfoExt>) -> u32 {
    device_call(device, |facts| {
        let version = Out::<u32>::at(info.address_of(0)?).get()?;
        if version != PCI_INFO_EXT_V1 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let found = PciInfo::of(facts);
        Ok(info.set(PciInfoExt {
            version,
            domain: found.domain,
            bus: found.bus,
            device: found.device,
            device_id: found.device_id,
            subsystem_id: found.subsystem_id,
            base_class: 3,
            subclass: 2,
            id: found.id,
        })?)
    })
}

/// The structure is as long up to the number of the subsystem, and then has four reserved words.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v2(device: Handle, info: Out<u8>) -> u32 {
    device_call(device, |facts| {
        put_place(facts, info)?;
        let rest = Out::<[u32; 5]>::at(info.address_of(PLACE_BYTES)?);
        Ok(rest.set([0; 5])?)
    })
}

/// The structure ends before the number of the subsystem.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo(device: Handle, info: Out<u8>) -> u32 {
    device_call(device, |facts| put_place(facts, info))
}

/// Puts the part of the structure that all versions have.
fn put_place(facts: &Facts, info: Out<u8>) -> Answer {
    let found = PciInfo::of(facts);
    let start = info.address_of(0)?;
    Out::<[u8; 16]>::at(start).set(found.legacy_id)?;
    let numbers = [found.domain, found.bus, found.device, found.device_id];
    Ok(Out::<[u32; 4]>::at(start + found.legacy_id.len()).set(numbers)?)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Handle,
    major: Out<i32>,
    minor: Out<i32>,
) -> u32 {
    device_call(device, |facts| {
        let [found_major, found_minor] = facts.capability();
        if major.is_null() || minor.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        major.set(found_major)?;
        Ok(minor.set(found_minor)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetArchitecture(device: Handle, architecture: Out<u32>) -> u32 {
    device_call(device, |facts| {
        Ok(architecture.set(architecture_of(facts.capability()))?)
    })
}

/// Returns the number of the architecture (`NVML_DEVICE_ARCH_…`) with a compute capability.
fn architecture_of(capability: [i32; 2]) -> u32 {
    match capability {
        [3, _] => 2,
        [5, _] => 3,
        [6, _] => 4,
        [7, 5] => 6,
        [7, _] => 5,
        [8, 9] => 8,
        [8, _] => 7,
        [9, _] => 9,
        [10..=12, _] => 10,
        _ => UNKNOWN_ARCHITECTURE,
    }
}

/// Brands tell apart products with other licenses or drivers.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetBrand(device: Handle, brand: Out<u32>) -> u32 {
    device_call(device, |_| Ok(brand.set(UNKNOWN_BRAND)?))
}

/// Largest clock rates in MHz: graphics (0), multiprocessors (1) and memory (2). Others are not
/// known.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: u32, clock: Out<u32>) -> u32 {
    device_call(device, |facts| {
        let attribute = match kind {
            0 | 1 => CLOCK_KHZ,
            2 => MEMORY_CLOCK_KHZ,
            3 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        put_known(clock, attribute_of(facts, attribute).map(|khz| khz / 1000))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryBusWidth(device: Handle, bits: Out<u32>) -> u32 {
    device_call(device, |facts| {
        put_known(bits, attribute_of(facts, MEMORY_BUS_BITS))
    })
}

/// Returns a CUDA device attribute that is known and not zero.
fn attribute_of(facts: &Facts, number: u32) -> Option<u32> {
    let value = facts.attribute(number)?;
    u32::try_from(value).ok().filter(|value| *value != 0)
}

fn put_known(into: Out<u32>, value: Option<u32>) -> Answer {
    Ok(into.set(value.ok_or(Code::NOT_SUPPORTED)?)?)
}

/// Any process of the guest may use the device (`NVML_COMPUTEMODE_DEFAULT`).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeMode(device: Handle, mode: Out<u32>) -> u32 {
    device_call(device, |_| Ok(mode.set(0)?))
}

/// The host cools its devices.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNumFans(device: Handle, count: Out<u32>) -> u32 {
    device_call(device, |_| Ok(count.set(0)?))
}

/// The device has no display (`NVML_FEATURE_DISABLED`).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDisplayMode(device: Handle, display: Out<u32>) -> u32 {
    device_call(device, |_| Ok(display.set(0)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDisplayActive(device: Handle, display: Out<u32>) -> u32 {
    nvmlDeviceGetDisplayMode(device, display)
}

/// The device is not divided into smaller ones.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: Out<u32>) -> u32 {
    device_call(device, |_| Ok(is_mig.set(0)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<u32>) -> u32 {
    device_call(device, |_| Ok(count.set(0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_that_of_the_documentation() {
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(size_of::<PciInfoExt>(), 64);
        assert_eq!(padded::<4>("abcdef"), *b"abc\0");
        assert_eq!(padded::<4>("a"), *b"a\0\0\0");
    }

    #[test]
    fn architectures_follow_from_the_capability() {
        let found = [[7, 0], [7, 5], [8, 0], [8, 9], [9, 0], [10, 0], [0, 0]].map(architecture_of);
        assert_eq!(found, [5, 6, 7, 8, 9, 10, UNKNOWN_ARCHITECTURE]);
    }
}
