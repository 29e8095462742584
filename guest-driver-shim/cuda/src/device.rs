//! Devices (CUDA driver API, "Device Management" and "Version Management").

use crate::boundary::Out;
use crate::driver::{Driver, answer, call};

/// Version of the API that this library answers: CUDA 13.0.
const VERSION: i32 = 13000;

/// Returns the newest version of CUDA that the device's driver has.
pub(crate) const fn version(_: &Driver) -> i32 {
    VERSION
}

/// Returns an attribute of the device (`CUdevice_attribute`). Merge: the part "device" answers this.
pub(crate) fn attribute(driver: &Driver, number: u32) -> Option<i32> {
    let attributes = &driver.attributes;
    Some(match number {
        1..=3 => attributes.block_threads_max as i32,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 48 << 10,
        10 => attributes.warp_threads as i32,
        12 | 82 => 65536,
        16 => attributes.compute_units as i32,
        39 => 2048,
        75 => 9,
        76 => 0,
        81 => attributes.shared_bytes_max as i32 + 1024,
        95 => 1,
        97 => attributes.shared_bytes_max as i32,
        106 => 32,
        111 => 1024,
        _ => return None,
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<i32>) -> u32 {
    answer(|| version.set(VERSION))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<i32>) -> u32 {
    call(|_| count.set(1))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> u32 {
    call(|driver| {
        driver.device_of(ordinal)?;
        device.set(ordinal)
    })
}
