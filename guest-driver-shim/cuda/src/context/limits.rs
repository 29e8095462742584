//! Limits and configurations of contexts (CUDA driver API, "Context Management").

use crate::boundary::Out;
use crate::device;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};

/// Most local memory of a thread (CUDA C++ Programming Guide, "Technical Specifications").
const STACK_BYTES_MAX: usize = 512 << 10;
/// Most bytes that the L2 cache fetches at a time.
const FETCH_BYTES_MAX: usize = 128;
/// Attribute of devices: bytes of L2 cache for accesses that persist.
const CACHE_BYTES_MAX: u32 = 108;

/// Returns what a limit is before it is set (`CUlimit`): those of an H200.
fn usual_limit(limit: u32) -> Answer<usize> {
    Ok(match limit {
        0 => 1024,
        1 => 1 << 20,
        2 => 8 << 20,
        3 => 2,
        4 => 2048,
        5 => 128,
        6 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// Refuses values that the device cannot have, as an H200 does.
fn check_limit(driver: &Driver, limit: u32, value: usize) -> Answer {
    let cache_max = device::attribute(driver, CACHE_BYTES_MAX).unwrap_or(0);
    let most = match limit {
        0 => STACK_BYTES_MAX,
        // Kernels that launch kernels do not wait for them on such devices.
        3 => return Err(Code::UNSUPPORTED_LIMIT),
        5 => FETCH_BYTES_MAX,
        6 => cache_max as usize,
        7 => return Err(Code::NOT_PERMITTED),
        _ => usize::MAX,
    };
    (value <= most).then_some(()).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(limit: u32, value: usize) -> u32 {
    call_in_context(|driver, context| {
        check_limit(driver, limit, value)?;
        usual_limit(limit)?;
        context.limits.lock().insert(limit, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetLimit(value: Out<usize>, limit: u32) -> u32 {
    call_in_context(|_, context| {
        let usual = usual_limit(limit)?;
        let set = context.limits.lock().get(&limit).copied();
        value.set(set.unwrap_or(usual))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCacheConfig(config: Out<u32>) -> u32 {
    call_in_context(|_, _| config.set(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCacheConfig(config: u32) -> u32 {
    call_in_context(|_, _| match config {
        0..=3 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetSharedMemConfig(config: Out<u32>) -> u32 {
    call_in_context(|_, _| config.set(1))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetSharedMemConfig(config: u32) -> u32 {
    call_in_context(|_, _| match config {
        0..=2 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxResetPersistingL2Cache() -> u32 {
    call_in_context(|_, _| Ok(()))
}
