//! Access of devices to each other's memory: there is only one device.

use crate::boundary::Out;
use crate::context;
use crate::driver::{call, call_in_context};
use crate::error::Code;

/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
const UNSUPPORTED: Code = Code(217);
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`
const NOT_ENABLED: Code = Code(705);

/// No device is a peer of itself.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> u32 {
    call(|driver| {
        driver.device_of(device)?;
        driver.device_of(peer)?;
        can.set(0)
    })
}

/// Two different devices are wanted, and there are no two.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    _attribute: u32,
    _source: i32,
    _destination: i32,
) -> u32 {
    call(|_| {
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        Err(Code::INVALID_DEVICE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: usize, flags: u32) -> u32 {
    call_in_context(|driver, _| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        context::find(driver, peer)?;
        Err(UNSUPPORTED)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(peer: usize) -> u32 {
    call_in_context(|driver, _| {
        context::find(driver, peer)?;
        Err(NOT_ENABLED)
    })
}
