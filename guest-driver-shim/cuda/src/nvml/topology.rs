//! What connects devices.

use crate::boundary::Out;

use super::code::Code;
use super::handle::{Handle, device_call};
use super::library::devices;

/// `NVML_TOPOLOGY_INTERNAL`: nothing is between them.
const INTERNAL: u32 = 0;
/// Levels of the topology: multiples of ten up to the whole system.
const LEVELS: [u32; 6] = [0, 10, 20, 30, 40, 50];
/// `NVML_P2P_STATUS_OK` and `…_NOT_SUPPORTED`
const PEER: u32 = 0;
const NO_PEER: u32 = 5;
/// `NVML_P2P_CAPS_INDEX_READ`, `…_WRITE` and `…_ATOMICS`: the others are not known.
const READ: u32 = 0;
const WRITE: u32 = 1;
const ATOMICS: u32 = 3;
/// `NVML_TOPOLOGY_SYSTEM`: how the host connects its devices is not told.
const SYSTEM: u32 = 50;
/// Number of the last capability of a pair (`nvmlGpuP2PCapsIndex_t`).
const LAST_CAPABILITY: u32 = 5;
/// Bytes of an entry of `nvmlDeviceGetFieldValues`, and where its result is.
const FIELD_BYTES: usize = 40;
const FIELD_RESULT: usize = 28;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    device: Handle,
    other: Handle,
    level: Out<u32>,
) -> u32 {
    device_call(device, |device| {
        let is_same = other.device()?.index == device.index;
        Ok(level.set(if is_same { INTERNAL } else { SYSTEM })?)
    })
}

/// All other devices are on the level of the system.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    device: Handle,
    level: u32,
    count: Out<u32>,
    into: Out<Handle>,
) -> u32 {
    device_call(device, |device| {
        if !LEVELS.contains(&level) {
            return Err(Code::INVALID_ARGUMENT);
        }
        let others = devices().iter().filter(|other| other.index != device.index);
        let near: Vec<_> = others.filter(|_| level == SYSTEM).collect();
        let room = if near.is_empty() {
            0
        } else {
            count.get()? as usize
        };
        count.set(near.len() as u32)?;
        if into.is_null() {
            return Ok(());
        }
        for (index, other) in near.iter().take(room).enumerate() {
            into.set_at(index, Handle::of(other))?;
        }
        Ok(())
    })
}

/// No device is a peer of itself, as `cuDeviceCanAccessPeer` says, too.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    device: Handle,
    other: Handle,
    capability: u32,
    status: Out<u32>,
) -> u32 {
    device_call(device, |device| {
        let other = other.device()?;
        if capability > LAST_CAPABILITY {
            return Err(Code::INVALID_ARGUMENT);
        }
        let able = match capability {
            READ | WRITE => device.gpus.peers,
            ATOMICS => device.gpus.atomics,
            _ => 0,
        };
        let is_given = able >> other.gpus.gpu & 1 == 1;
        Ok(status.set(if is_given { PEER } else { NO_PEER })?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceOnSameBoard(device: Handle, other: Handle, is_same: Out<i32>) -> u32 {
    device_call(device, |device| {
        let other = other.device()?;
        Ok(is_same.set(i32::from(other.index == device.index))?)
    })
}

/// Each field has a result of its own, and none is known.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: i32, values: Out<u8>) -> u32 {
    device_call(device, |_| {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        if count == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        for index in 0..count {
            let result = values.address_of(index * FIELD_BYTES + FIELD_RESULT)?;
            Out::<u32>::at(result).set(Code::NOT_SUPPORTED.0)?;
        }
        Ok(())
    })
}
