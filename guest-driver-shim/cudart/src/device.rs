//! Devices (CUDA Runtime API, "Device Management" and "Version Management").

use causeway_cuda_abi::boundary::{In, Out};
use causeway_cuda_abi::error::Code;

use crate::context::{self, answer};
use crate::driver::driver;
use crate::error::record;

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceCount(count: Out<i32>) -> u32 {
    let devices = context::devices();
    if devices.is_err() {
        // Programs look at the count alone.
        let _ = count.set(0);
    }
    record(devices.and_then(|devices| count.set(devices)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDevice(device: Out<i32>) -> u32 {
    record(context::device_of_context().map_or_else(
        |_| context::devices().and_then(|_| device.set(context::device())),
        |current| device.set(current),
    ))
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: i32) -> u32 {
    record(context::choose(device))
}

/// Makes a device's context without choosing it for the thread.
#[unsafe(no_mangle)]
extern "C" fn cudaInitDevice(device: i32, device_flags: u32, flags: u32) -> u32 {
    /// `cudaInitDeviceFlagsAreValid`.
    const FLAGS_ARE_VALID: u32 = 1;
    record(context::start().and_then(|()| {
        if flags & !FLAGS_ARE_VALID != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if flags == FLAGS_ARE_VALID {
            driver!(cuDevicePrimaryCtxSetFlags_v2(device, device_flags & FLAGS))?;
        }
        context::primary(device).map(|_| ())
    }))
}

/// What the program wishes is ignored: device 0 is right for most.
#[unsafe(no_mangle)]
extern "C" fn cudaChooseDevice(device: Out<i32>, _wanted: usize) -> u32 {
    record(context::devices().and_then(|_| device.set(0)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetValidDevices(devices: In<i32>, count: i32) -> u32 {
    record(context::devices().and_then(|there| {
        if !(0..=there).contains(&count) {
            return Err(Code::INVALID_VALUE);
        }
        let listed = devices.list(count as usize)?;
        let is_there = |device: &i32| (0..there).contains(device);
        match listed.first() {
            Some(first) if listed.iter().all(is_there) => context::choose(*first),
            Some(_) => Err(Code::INVALID_DEVICE),
            None => Ok(()),
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceReset() -> u32 {
    record(context::reset())
}

/// `cudaDeviceMapHost`, which every context has, and which the driver does not take.
const MAP_HOST: u32 = 8;
/// Flags that the driver takes: how to wait, and `cudaDeviceLmemResizeToMax`. NVIDIA's runtime
/// ignores others.
const FLAGS: u32 = 7 | 16;

#[unsafe(no_mangle)]
extern "C" fn cudaSetDeviceFlags(flags: u32) -> u32 {
    record(context::start().and_then(|()| {
        let device = context::device();
        driver!(cuDevicePrimaryCtxSetFlags_v2(device, flags & FLAGS))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceFlags(flags: Out<u32>) -> u32 {
    answer(|| {
        let mut of_context = 0_u32;
        driver!(cuCtxGetFlags(&raw mut of_context))?;
        flags.set(of_context | MAP_HOST)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32) -> u32 {
    answer(|| {
        let context = context::primary(peer)?;
        driver!(cuCtxEnablePeerAccess(context, flags))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceDisablePeerAccess(peer: i32) -> u32 {
    answer(|| {
        let context = context::primary(peer)?;
        driver!(cuCtxDisablePeerAccess(context))
    })
}

/// Without a driver its version is 0, and that is no error.
#[unsafe(no_mangle)]
extern "C" fn cudaDriverGetVersion(version: Out<i32>) -> u32 {
    let mut of_driver = 0_i32;
    let found = driver!(cuDriverGetVersion(&raw mut of_driver));
    record(version.set(if found.is_ok() { of_driver } else { 0 }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaRuntimeGetVersion(version: Out<i32>) -> u32 {
    record(version.set(crate::VERSION))
}
