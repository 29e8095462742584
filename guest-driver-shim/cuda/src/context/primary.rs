//! The primary context of each device (CUDA driver API, "Primary Context Management").

use std::sync::atomic::Ordering;

use super::check_flags;
use crate::boundary::Out;
use crate::driver::{call_on, call_on_unless_faulted};
use crate::error::Code;
use crate::host_function;

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) -> u32 {
    call_on_unless_faulted(device, |driver| {
        if context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // Held throughout, so that nobody else makes or ends the context meanwhile.
        let mut contexts = driver.contexts.lock();
        let handle = match &contexts.primary {
            Some(primary) => primary.handle,
            None => {
                let flags = contexts.primary_flags;
                let made = contexts.make(driver, true, flags);
                contexts.primary.insert(made).handle
            }
        };
        contexts.retained += 1;
        context.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32 {
    call_on(device, |driver| {
        host_function::refuse_within()?;
        let mut contexts = driver.contexts.lock();
        if contexts.retained == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        contexts.retained -= 1;
        let last = contexts.retained == 0;
        let ended = if last { contexts.primary.take() } else { None };
        drop(contexts);
        if let Some(primary) = ended {
            driver.tear_down(&primary);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32 {
    call_on(device, |driver| {
        host_function::refuse_within()?;
        // Those that retain it still release it.
        let mut contexts = driver.contexts.lock();
        let ended = contexts.primary.take();
        drop(contexts);
        if let Some(primary) = ended {
            driver.tear_down(&primary);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> u32 {
    call_on(device, |driver| {
        let contexts = driver.contexts.lock();
        let of_primary = contexts.primary.as_ref();
        let set = of_primary.map(|primary| primary.flags.load(Ordering::Relaxed));
        flags.set(set.unwrap_or(contexts.primary_flags))?;
        active.set(i32::from(contexts.primary.is_some()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> u32 {
    call_on(device, |driver| {
        check_flags(flags)?;
        let mut contexts = driver.contexts.lock();
        contexts.primary_flags = flags;
        if let Some(primary) = &contexts.primary {
            primary.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    })
}
