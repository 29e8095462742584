//! Devices (CUDA driver API, "Device Management", "Version Management" and "Peer Context Memory
//! Access"). Facts of devices do not change.

mod facts;
mod peers;

pub(crate) use facts::{Facts, query};

use crate::boundary::{Out, Text};
use crate::driver::{Driver, answer, call, call_in_context, call_on};
use crate::error::Code;

/// Version of the API that this library answers: CUDA 13.0.
const VERSION: i32 = 13000;
/// `CU_EXEC_AFFINITY_TYPE_SM_COUNT`, the only type.
const AFFINITY_TO_MULTIPROCESSORS: u32 = 0;
/// Attribute of devices: number of multiprocessors.
const MULTIPROCESSORS: u32 = 16;
/// `CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH`
const CLUSTER_LAUNCH: u32 = 120;
/// Blocks of a cluster on any device that has clusters (CUDA C++ Programming Guide, "Thread Block
/// Clusters").
const CLUSTER_BLOCKS_MAX: u64 = 8;

/// Returns the value of the attribute `number` of `CUdevice_attribute`; `None` if there is no such
/// attribute.
pub(crate) fn attribute(driver: &Driver, number: u32) -> Option<i32> {
    driver.facts.attribute(number)
}

/// Returns how many blocks a cluster may have.
pub(crate) fn cluster_blocks_max(driver: &Driver) -> u64 {
    match attribute(driver, CLUSTER_LAUNCH) {
        Some(1) => CLUSTER_BLOCKS_MAX,
        _ => 1,
    }
}

/// Returns the version of the CUDA API that this library answers on the host's driver, such as
/// 13000 for 13.0.
pub(crate) fn version(driver: &Driver) -> i32 {
    version_on(&driver.facts)
}

/// Returns the same for the device that `facts` describe.
pub(crate) fn version_on(facts: &Facts) -> i32 {
    VERSION.min(facts.cuda_version())
}

/// Answers with the smaller of this library's version and that of the host's driver, for whose
/// compiler programs write PTX. Before `cuInit` the host is unknown.
#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<i32>) -> u32 {
    answer(|| {
        let host = Driver::get().map_or(VERSION, self::version);
        version.set(host)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<i32>) -> u32 {
    call(|_| count.set(Driver::all().len() as i32))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> u32 {
    call_on(ordinal, |_| device.set(ordinal))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: Out<u8>, room: i32, device: i32) -> u32 {
    call_on(device, |driver| {
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        name.set_text(driver.facts.name(), room).map(drop)
    })
}

/// Returns a UUID of a device as text.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
    let digits = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let parts = [
        &uuid[..4],
        &uuid[4..6],
        &uuid[6..8],
        &uuid[8..10],
        &uuid[10..],
    ]
    .map(digits);
    format!("GPU-{}", parts.join("-"))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) -> u32 {
    call_on(device, |driver| uuid.set(driver.facts.uuid()))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) -> u32 {
    cuDeviceGetUuid(uuid, device)
}

/// Only Windows has such numbers.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetLuid(_luid: Out<u64>, _mask: Out<u32>, device: i32) -> u32 {
    call_on(device, |_| Err(Code::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> u32 {
    call_on(device, |driver| {
        bytes.set(driver.facts.memory_bytes() as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<i32>, number: u32, device: i32) -> u32 {
    call_on(device, |driver| {
        value.set(attribute(driver, number).ok_or(Code::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> u32 {
    call_on(device, |driver| {
        let [found_major, found_minor] = driver.facts.capability();
        major.set(found_major)?;
        minor.set(found_minor)
    })
}

/// The old structure of a device's limits: 14 attributes as integers (`CUdevprop`).
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetProperties(properties: Out<[i32; 14]>, device: i32) -> u32 {
    // Threads of a block, its dimensions, the grid's; shared and constant memory; threads of a
    // warp, pitch, registers, clock, alignment of textures.
    const NUMBERS: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
    call_on(device, |driver| {
        properties.set(NUMBERS.map(|number| attribute(driver, number).unwrap_or(0)))
    })
}

/// Domain, bus and device number, as in `/sys/bus/pci`.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(text: Out<u8>, room: i32, device: i32) -> u32 {
    call_on(device, |driver| {
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        let [domain, bus, device] = driver.facts.pci();
        let id = format!("{domain:04x}:{bus:02x}:{device:02x}.0");
        if room <= id.len() {
            return Err(Code::INVALID_VALUE);
        }
        text.set_text(&id, room).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetByPCIBusId(device: Out<i32>, id: Text) -> u32 {
    call(|_| {
        let wanted = pci_address(&id.get()?).ok_or(Code::INVALID_VALUE)?;
        let mut all = Driver::all().iter();
        let found = all.find(|driver| driver.facts.pci() == wanted);
        device.set(found.ok_or(Code::INVALID_DEVICE)?.ordinal as i32)
    })
}

/// Returns domain, bus and device number of `DOMAIN:BUS:DEVICE.FUNCTION`, in hexadecimal digits.
/// Domain and function may be left out; `None` if the text is anything else.
pub(crate) fn pci_address(text: &str) -> Option<[u32; 3]> {
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = is_plain.then_some(text)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let (place, function) = match text.split_once('.') {
        Some((place, function)) => (place, number(function)?),
        None => (text, 0),
    };
    let parts: Option<Vec<u32>> = place.split(':').map(number).collect();
    let address = match parts?[..] {
        [domain, bus, device] => [domain, bus, device],
        [bus, device] => [0, bus, device],
        _ => return None,
    };
    (function == 0).then_some(address)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, _kind: u32, device: i32) -> u32 {
    call_on(device, |_| {
        // No kind: a part of the multiprocessors is for clients of MPS alone.
        supported.set(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetExecAffinity(affinity: Out<[u32; 2]>, kind: u32) -> u32 {
    call_in_context(|driver, _| {
        if affinity.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if kind != AFFINITY_TO_MULTIPROCESSORS {
            return Err(Code::UNSUPPORTED_EXEC_AFFINITY);
        }
        // Kind and number: a context has all multiprocessors.
        let all = attribute(driver, MULTIPROCESSORS).unwrap_or(0);
        affinity.set([AFFINITY_TO_MULTIPROCESSORS, all.cast_unsigned()])
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetNvSciSyncAttributes(_attributes: usize, device: i32, _flags: i32) -> u32 {
    unsupported(device)
}

fn unsupported(device: i32) -> u32 {
    call_on(device, |_| Err(Code::NOT_SUPPORTED))
}

/// No other PCI device can write to memory of this one, so there is nothing to wait for.
#[unsafe(no_mangle)]
extern "C" fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32) -> u32 {
    call_in_context(|_, _| Err(Code::NOT_SUPPORTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_monitors_expect_it() {
        let uuid = std::array::from_fn(|i| i as u8 * 0x11);
        let text = "GPU-00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(uuid_text(uuid), text);
    }

    #[test]
    fn addresses_are_read_with_and_without_domain_and_function() {
        for (text, address) in [
            ("0000:1b:00.0", Some([0, 0x1b, 0])),
            ("0001:1B:1f", Some([1, 0x1b, 0x1f])),
            ("1b:02.0", Some([0, 0x1b, 2])),
            ("00000000:1b:00.0", Some([0, 0x1b, 0])),
            ("1b:02.1", None),
            ("1b", None),
            ("", None),
            ("0:1:2:3", None),
            ("+1:02", None),
            ("1b:zz", None),
            ("1b:02.", None),
        ] {
            assert_eq!(pci_address(text), address, "{text:?}");
        }
    }
}
