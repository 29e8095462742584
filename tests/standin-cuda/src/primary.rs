//! The context that a device has for all who ask (CUDA driver API, "Primary Context Management").

use crate::boundary::Out;
use crate::context::{FLAGS, Kind, create, tear_down, whole_device};
use crate::driver::{Driver, call, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::handles;

/// The primary context of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Primary {
    /// 0 until it is first retained; the same ever after.
    handle: usize,
    retained: u32,
    flags: u32,
}

/// Makes the primary context of a device if there is none, and keeps it once more. Its handle.
pub(crate) fn retain(driver: &'static Driver, device: usize) -> Answer<usize> {
    let mut state = driver.state();
    let Primary {
        mut handle,
        retained,
        flags,
    } = state.primary[device];
    if retained == 0 {
        if handle == 0 {
            handle = handles::fresh();
        }
        let whole = whole_device(driver);
        let made = create(driver, (handle, Kind::Primary), device, flags, whole)?;
        state.contexts.put(handle, made);
    }
    state.primary[device] = Primary {
        handle,
        retained: retained + 1,
        flags,
    };
    Ok(handle)
}

/// Keeps the primary context of a device once less; the last to do so ends it.
pub(crate) fn release(driver: &Driver, device: usize) -> Answer {
    let (handle, left) = {
        let mut state = driver.state();
        let primary = &mut state.primary[device];
        primary.retained = match primary.retained {
            0 => return Err(Code::INVALID_CONTEXT),
            count => count - 1,
        };
        (primary.handle, primary.retained)
    };
    if left == 0 {
        tear_down(driver, handle);
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) -> u32 {
    call_unless_faulted(|driver| {
        let device = driver.device(device)?;
        if context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        context.set(retain(driver, device)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32 {
    call(|driver| {
        release(driver, driver.device(device)?)?;
        driver.check_sticky()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32 {
    call(|driver| {
        let device = driver.device(device)?;
        let (handle, retained) = {
            let mut state = driver.state();
            let primary = &mut state.primary[device];
            (primary.handle, std::mem::take(&mut primary.retained))
        };
        if retained != 0 {
            tear_down(driver, handle);
        }
        driver.check_sticky()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> u32 {
    call(|driver| {
        let device = driver.device(device)?;
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.state().primary[device].flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> u32 {
    call(|driver| {
        let primary = driver.state().primary[driver.device(device)?];
        flags.set(primary.flags)?;
        active.set(i32::from(primary.retained != 0))
    })
}
