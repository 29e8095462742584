//! The few functions of NVML that tell the link between two GPUs. A program finds them only where a
//! test has given this library the name `libnvidia-ml.so.1`, too.

use crate::boundary::{Out, Text};
use crate::driver::call;
use crate::error::Code;

/// `NVML_P2P_CAPS_INDEX_NVLINK`
const NVLINK: i32 = 2;
/// `NVML_P2P_STATUS_NOT_SUPPORTED`
const NOT_SUPPORTED: i32 = 5;
/// `NVML_TOPOLOGY_NODE`
const OF_ONE_NODE: i32 = 40;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    0
}

/// A handle is the number of the bus, which is not zero.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: Text, device: Out<usize>) -> u32 {
    call(|driver| {
        let address = address.get()?;
        let bus = |number: &usize| format!("0000:{number:02x}:00.0") == *address;
        let found = (1..=driver.settings.devices).find(bus);
        device.set(found.ok_or(Code::NOT_FOUND)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    device: usize,
    peer: usize,
    capability: i32,
    status: Out<i32>,
) -> u32 {
    call(|driver| {
        if device == peer || capability != NVLINK {
            return Err(Code::INVALID_VALUE);
        }
        status.set(match driver.settings.nvlink {
            true => 0,
            false => NOT_SUPPORTED,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    device: usize,
    peer: usize,
    level: Out<i32>,
) -> u32 {
    call(|_| match device == peer {
        true => Err(Code::INVALID_VALUE),
        false => level.set(OF_ONE_NODE),
    })
}
