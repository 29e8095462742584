//! Devices (CUDA driver API, "Device Management" and "Version Management").

use crate::boundary::Out;
use crate::driver::{answer, call};

/// Version of the API that this library answers: CUDA 13.0.
const VERSION: i32 = 13000;

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
