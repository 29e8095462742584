//! Devices (CUDA driver API, "Device Management", "Version Management").

use crate::attributes;
use crate::boundary::{In, Out};
use crate::driver::{Driver, answer, call, call_in_context};
use crate::error::{Answer, Code};

/// Whoever prints the name of the device says that it is none.
const NAME: &str = "Causeway stand-in (no GPU)";

/// May be asked before `cuInit`.
#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<i32>) -> u32 {
    answer(|| version.set(crate::settings::Settings::read().driver_version))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<i32>) -> u32 {
    call(|driver| count.set(driver.devices.len() as i32))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> u32 {
    call(|driver| {
        let found = driver.device(ordinal)?;
        let found = match driver.settings.reversed {
            true => driver.settings.devices - 1 - found,
            false => found,
        };
        device.set(found as i32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: Out<u8>, room: i32, device: i32) -> u32 {
    call(|driver| {
        driver.device(device)?;
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        name.set_text(NAME, room).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) -> u32 {
    call(|driver| {
        let device = driver.device(device)?;
        let mut bytes = driver.settings.uuid;
        // At most 16 devices.
        bytes[15] = bytes[15].wrapping_add(device as u8);
        uuid.set(bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) -> u32 {
    cuDeviceGetUuid(uuid, device)
}

/// No device is a peer of itself.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> u32 {
    call(|driver| {
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        can.set((device != peer && driver.settings.peers).into())
    })
}

/// Performance (0, the best rank), access, atomics, arrays, and atomics of a part of the
/// operations.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    attribute: u32,
    device: i32,
    peer: i32,
) -> u32 {
    call(|driver| {
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        if device == peer {
            return Err(Code::INVALID_DEVICE);
        }
        match attribute {
            1 => value.set(0),
            2..=5 => value.set(driver.settings.peers.into()),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> u32 {
    call(|driver| {
        let device = driver.device(device)?;
        bytes.set(driver.settings.memory_bytes(device) as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) -> u32 {
    call(|driver| {
        let device = driver.device(device)?;
        let found = attributes::value(&driver.settings, attribute, device);
        value.set(found.ok_or(Code::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> u32 {
    call(|driver| {
        driver.device(device)?;
        major.set(driver.capability() / 10)?;
        minor.set(driver.capability() % 10)
    })
}

/// Domain, bus and device number, as in `/sys/bus/pci`.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(text: Out<u8>, room: i32, device: i32) -> u32 {
    call(|driver| {
        let device = driver.device(device)?;
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        let id = format!("0000:{:02x}:00.0", device + 1);
        text.set_text(&id, room).map(drop)
    })
}

/// Free and total memory of the device of the current context, as all processes see it.
#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> u32 {
    call_in_context(|driver, context| {
        let used = driver.ledger.used(context.device);
        let used = used.map_err(|_| Code::OPERATING_SYSTEM)?;
        let bytes = driver.settings.memory_bytes(context.device);
        free.set(bytes.saturating_sub(used) as usize)?;
        total.set(bytes as usize)
    })
}

/// No such objects are made here, but their granularity can be asked for.
#[unsafe(no_mangle)]
extern "C" fn cuMulticastGetGranularity(
    bytes: Out<usize>,
    properties: In<[u64; 4]>,
    _option: u32,
) -> u32 {
    call(|driver| {
        properties.get()?;
        driver.check_multicast()?;
        bytes.set(crate::addresses::GRANULARITY as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMulticastCreate(_handle: Out<u64>, _properties: In<[u64; 4]>) -> u32 {
    call(|driver| {
        driver.check_multicast()?;
        Err(Code::NOT_PERMITTED)
    })
}

impl Driver {
    /// Compute capability, ten times the major number and the minor one.
    pub(crate) fn capability(&self) -> i32 {
        let [major, minor] = attributes::CAPABILITY
            .map(|attribute| attributes::value(&self.settings, attribute, 0).unwrap_or(0));
        10 * major + minor
    }

    /// Whether the device says that it has a feature.
    pub(crate) fn supports(&self, attribute: i32) -> Answer {
        match attributes::value(&self.settings, attribute, 0) {
            None | Some(0) => Err(Code::NOT_SUPPORTED),
            Some(_) => Ok(()),
        }
    }

    fn check_multicast(&self) -> Answer {
        self.supports(132)
    }
}
