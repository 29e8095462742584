//! Contexts that count their users: `cuCtxAttach` and `cuCtxDetach`, which CUDA keeps for programs
//! of its first versions.

use std::sync::atomic::Ordering;

use super::{find, leave};
use crate::boundary::Out;
use crate::driver::{call, call_in_context};
use crate::error::Code;
use crate::host_function;

#[unsafe(no_mangle)]
extern "C" fn cuCtxAttach(context: Out<usize>, flags: u32) -> u32 {
    call_in_context(|_, current| {
        if flags != 0 || context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        current.users.fetch_add(1, Ordering::Relaxed);
        context.set(current.handle)
    })
}

/// Ends a context with its last user. The context must be current to the calling thread.
#[unsafe(no_mangle)]
extern "C" fn cuCtxDetach(context: usize) -> u32 {
    call(|driver| {
        host_function::refuse_within()?;
        let found = find(driver, context)?;
        if found.is_primary || !found.is_current() {
            return Err(Code::INVALID_CONTEXT);
        }
        // Another thread's context may end at the same time: only one of them sees the last user.
        if found.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            found.driver.tear_down(&found);
            leave(context)?;
        }
        found.driver.check_sticky()
    })
}
