//! The device of each thread, and its primary context (CUDA Runtime API, "Interactions with the
//! CUDA Driver API"): a thread uses device 0 until it chooses, and the context that a program has
//! made current by the driver API if it has.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use causeway_cuda_abi::error::{Answer, Code};
use parking_lot::Mutex;

use crate::driver::driver;
use crate::error::{INSUFFICIENT_DRIVER, record};

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// The primary contexts that this library holds, by device. No call of the driver is made under the
/// lock: finding a function takes the dynamic linker's lock, and a library that is being loaded may
/// call this one.
static PRIMARY: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());
/// All primary contexts that it has ever held.
static KNOWN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Does what a call of the program is to do, and returns the number of its outcome, which the
/// thread remembers if it is an error.
///
/// `operation` is done once more if it found the driver not initialized, or no context: it must
/// have done nothing then.
#[inline]
pub fn answer(operation: impl Fn() -> Answer) -> u32 {
    match operation() {
        Ok(()) => 0,
        Err(code) => {
            // Moved, so that what it holds need not be in memory before it has failed.
            let moved = operation;
            failed(code, &moved)
        }
    }
}

/// Does what is left of a call whose operation failed with `code`.
#[cold]
fn failed(code: Code, operation: &dyn Fn() -> Answer) -> u32 {
    record(if is_of_start(code) {
        again(code, operation)
    } else {
        Err(code)
    })
}

/// Does the same for a part of a call.
#[inline]
pub fn in_context(operation: impl Fn() -> Answer) -> Answer {
    match operation() {
        Err(code) if is_of_start(code) => again(code, &operation),
        outcome => outcome,
    }
}

/// Whether an operation lacked what this library does for a program before it can be done.
fn is_of_start(code: Code) -> bool {
    code == Code::NOT_INITIALIZED || is_of_context(code)
}

fn is_of_context(code: Code) -> bool {
    code == Code::INVALID_CONTEXT || code == Code::CONTEXT_IS_DESTROYED
}

/// Does an operation that failed with `code` once more, with what it lacked.
#[cold]
fn again(mut code: Code, operation: &dyn Fn() -> Answer) -> Answer {
    if code == Code::NOT_INITIALIZED {
        // Many calls need no more: a context takes memory of the device.
        start()?;
        match operation() {
            Err(other) if is_of_context(other) => code = other,
            outcome => return outcome,
        }
    }
    if has_foreign_context() {
        return Err(code);
    }
    prepare()?;
    match operation() {
        // The program has reset the primary context by the driver API.
        Err(Code::CONTEXT_IS_DESTROYED) => {
            forget(DEVICE.get());
            prepare()?;
            operation()
        }
        outcome => outcome,
    }
}

/// Whether the program has made a context of its own current.
fn has_foreign_context() -> bool {
    let mut current = 0_usize;
    let found = driver!(cuCtxGetCurrent(&raw mut current));
    let is_there = found.is_ok() && current != 0;
    is_there && !KNOWN.lock().contains(&current) && !is_primary(current)
}

/// Whether this context, which is current, is the primary one of its device, which another runtime
/// library in the process, or the program, has made current.
fn is_primary(context: usize) -> bool {
    let primary = || -> Answer<usize> {
        let device = device_of_context()?;
        let (mut flags, mut is_active, mut primary) = (0_u32, 0_i32, 0_usize);
        driver!(cuDevicePrimaryCtxGetState(
            device,
            &raw mut flags,
            &raw mut is_active
        ))?;
        if is_active != 0 {
            // There is no other way to be told which it is.
            driver!(cuDevicePrimaryCtxRetain(&raw mut primary, device))?;
            driver!(cuDevicePrimaryCtxRelease_v2(device))?;
        }
        Ok(primary)
    };
    primary() == Ok(context)
}

/// Makes the primary context of the thread's device current.
#[cold]
fn prepare() -> Answer {
    let device = DEVICE.get();
    let context = primary(device)?;
    match driver!(cuCtxSetCurrent(context)) {
        Err(code) if is_of_context(code) => {
            forget(device);
            let context = primary(device)?;
            driver!(cuCtxSetCurrent(context))
        }
        outcome => outcome,
    }
}

/// Lets go of a device's primary context.
fn forget(device: i32) {
    let held = PRIMARY.lock().remove(&device);
    if held.is_some() {
        // One that was reset may be gone already.
        let _ = driver!(cuDevicePrimaryCtxRelease_v2(device));
    }
}

/// Initializes the driver, if that was not done before.
pub fn start() -> Answer {
    let mut version = 0_i32;
    driver!(cuDriverGetVersion(&raw mut version))?;
    if version < crate::OLDEST_DRIVER {
        return Err(INSUFFICIENT_DRIVER);
    }
    driver!(cuInit(0_u32))
}

/// Returns the number of devices.
///
/// # Errors
/// There is none, or no driver.
pub fn devices() -> Answer<i32> {
    start()?;
    let mut count = 0_i32;
    driver!(cuDeviceGetCount(&raw mut count))?;
    if count == 0 {
        return Err(Code::NO_DEVICE);
    }
    Ok(count)
}

/// Returns the primary context of a device.
pub fn primary(device: i32) -> Answer<usize> {
    if !(0..devices()?).contains(&device) {
        return Err(Code::INVALID_DEVICE);
    }
    let held = PRIMARY.lock().get(&device).copied();
    if let Some(context) = held {
        return Ok(context);
    }
    let mut context = 0_usize;
    driver!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    KNOWN.lock().insert(context);
    let other = PRIMARY.lock().insert(device, context);
    if other.is_some() {
        // Another thread was as fast: it is held once.
        driver!(cuDevicePrimaryCtxRelease_v2(device))?;
    }
    Ok(context)
}

/// Returns the device of the context that is current.
#[inline]
pub fn device_of_context() -> Answer<i32> {
    let mut device = 0_i32;
    driver!(cuCtxGetDevice(&raw mut device)).map(|()| device)
}

/// Returns the context that is current.
///
/// # Errors
/// There is none.
pub fn current() -> Answer<usize> {
    device_of_context()?;
    let mut context = 0_usize;
    driver!(cuCtxGetCurrent(&raw mut context))?;
    Ok(context)
}

/// Returns the device of the calling thread: the device of its current context. Without one, it is
/// the device that the thread chose.
pub fn device() -> i32 {
    device_of_context().unwrap_or_else(|_| DEVICE.get())
}

/// Chooses the device of the calling thread.
pub fn choose(device: i32) -> Answer {
    let context = primary(device)?;
    driver!(cuCtxSetCurrent(context))?;
    DEVICE.set(device);
    Ok(())
}

/// Ends everything that the process has on the thread's device, also by other runtime libraries. If
/// the program has made a context of its own current, that stays: the runtime has nothing there.
pub fn reset() -> Answer {
    start()?;
    if has_foreign_context() {
        return Ok(());
    }
    let device = device();
    forget(device);
    driver!(cuDevicePrimaryCtxReset_v2(device))?;
    driver!(cuCtxSetCurrent(0_usize))
}
