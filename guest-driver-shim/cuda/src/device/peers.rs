//! Access of devices to each other's memory (CUDA driver API, "Peer Context Memory Access").

use causeway_protocol::message::UNKNOWN_RANK;

use crate::boundary::Out;
use crate::context;
use crate::driver::{Driver, call, call_in_context};
use crate::error::Code;

/// Numbers of `CUdevice_P2PAttribute`: relative performance, access, atomics, arrays, and whether
/// atomics are only of a part of the operations.
const RANK: u32 = 1;
const ACCESS: u32 = 2;
const ATOMICS: u32 = 3;
const ARRAYS: u32 = 4;
const PARTIAL_ATOMICS: u32 = 5;

/// No device is a peer of itself.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> u32 {
    call(|_| {
        let (device, peer) = (Driver::of_device(device)?, Driver::of_device(peer)?);
        can.set(i32::from(device.can_reach(peer)))
    })
}

/// Returns the rank of a way; 0, the best, where it is not known.
fn rank(reaches: bool, told: Option<u8>) -> i32 {
    let told = told.filter(|rank| reaches && *rank != UNKNOWN_RANK);
    told.map_or(0, i32::from)
}

/// Two different devices are wanted.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    attribute: u32,
    source: i32,
    destination: i32,
) -> u32 {
    call(|_| {
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if source == destination {
            return Err(Code::INVALID_DEVICE);
        }
        let (source, destination) = (Driver::of_device(source)?, Driver::of_device(destination)?);
        let reaches = source.can_reach(destination);
        let peer = destination.gpus.gpu;
        value.set(match attribute {
            RANK => rank(reaches, source.gpus.ranks.get(peer as usize).copied()),
            ACCESS => i32::from(reaches),
            ATOMICS => i32::from(reaches && source.gpus.atomics >> peer & 1 == 1),
            ARRAYS | PARTIAL_ATOMICS => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: usize, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.enable_peer(context, &*context::find(driver, peer)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(peer: usize) -> u32 {
    call_in_context(|driver, context| driver.disable_peer(context, &*context::find(driver, peer)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_not_known_are_the_best() {
        assert_eq!(rank(true, Some(3)), 3);
        assert_eq!(rank(false, Some(3)), 0);
        assert_eq!(rank(true, Some(UNKNOWN_RANK)), 0);
        assert_eq!(rank(true, None), 0);
    }
}
