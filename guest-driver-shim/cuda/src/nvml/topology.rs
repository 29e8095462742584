//! What connects devices: there is one.

use crate::boundary::Out;

use super::code::Code;
use super::handle::{Handle, device_call};

/// `NVML_TOPOLOGY_INTERNAL`: nothing is between them.
const INTERNAL: u32 = 0;
/// Levels of the topology: multiples of ten up to the whole system.
const LEVELS: [u32; 6] = [0, 10, 20, 30, 40, 50];
/// `NVML_P2P_STATUS_NOT_SUPPORTED`
const NO_PEER: u32 = 5;
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
    device_call(device, |_| {
        other.check()?;
        Ok(level.set(INTERNAL)?)
    })
}

/// There is no other device.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    device: Handle,
    level: u32,
    count: Out<u32>,
    _devices: Out<Handle>,
) -> u32 {
    device_call(device, |_| match LEVELS.contains(&level) {
        true => Ok(count.set(0)?),
        false => Err(Code::INVALID_ARGUMENT),
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
    device_call(device, |_| {
        other.check()?;
        match capability <= LAST_CAPABILITY {
            true => Ok(status.set(NO_PEER)?),
            false => Err(Code::INVALID_ARGUMENT),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceOnSameBoard(device: Handle, other: Handle, is_same: Out<i32>) -> u32 {
    device_call(device, |_| {
        other.check()?;
        Ok(is_same.set(1)?)
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
