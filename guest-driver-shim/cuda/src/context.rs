//! Contexts (CUDA driver API, "Context Management" and "Primary Context Management").
//!
//! A context is a name in this process: all contexts of a device use one address space and the same
//! rings.

mod limits;
mod primary;
mod thread;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::boundary::{In, Out};
use crate::driver::{Driver, call, call_in_context, call_of, call_on_unless_faulted};
use crate::error::{Answer, Code};
use crate::host_function;
use crate::stream::Stream;
use crate::structures::ContextParameters;
use crate::waits::Waits;
use thread::{look, on_stack};

/// Scheduling (bits 0 to 2), host mapping, resizing of local memory, dumps and synchronous copies.
const FLAGS: u32 = 0xff;
/// The bits of scheduling, and the values for waits that spin to the end (`CU_CTX_SCHED_SPIN`) and
/// for those that sleep (`CU_CTX_SCHED_BLOCKING_SYNC`).
const SCHEDULING: u32 = 7;
const SPIN: u32 = 1;
const BLOCKING_SYNC: u32 = 4;
/// The version of the API that `cuCtxGetApiVersion` has told since CUDA 3.2.
const API_VERSION: u32 = 3020;

/// A context.
pub(crate) struct Context {
    pub(crate) handle: usize,
    /// That of its device.
    pub(crate) driver: &'static Driver,
    is_primary: bool,
    flags: AtomicU32,
    limits: Mutex<BTreeMap<u32, usize>>,
    /// The legacy default stream.
    pub(crate) default_stream: Arc<Stream>,
    /// The stream behind `CU_STREAM_PER_THREAD`. All work is in one order, so that one is enough.
    pub(crate) thread_stream: Arc<Stream>,
    is_alive: AtomicBool,
    /// Users that `cuCtxDetach` counts down.
    users: AtomicU32,
}

/// All contexts of a device. Threads keep those that they have made current.
#[derive(Default)]
pub(crate) struct Contexts {
    table: BTreeMap<usize, Arc<Context>>,
    primary: Option<Arc<Context>>,
    /// How often the primary context is retained.
    retained: u32,
    primary_flags: u32,
}

/// Returns how waits of the calling thread pass the time, if the flags of its context say.
pub(crate) fn waits() -> Option<Waits> {
    let flags = |context: &Context| context.flags.load(Ordering::Relaxed);
    match look(|current| current.map_or(0, flags)) & SCHEDULING {
        SPIN => Some(Waits::Spin),
        BLOCKING_SYNC => Some(Waits::Sleep),
        _ => None,
    }
}

/// Calls `call` with the current context of the calling thread, or with why there is none.
#[inline]
pub(crate) fn with_current<T>(_: &Driver, call: impl FnOnce(Answer<&Context>) -> T) -> T {
    look(|context| {
        call(match context {
            Some(context) if context.is_alive.load(Ordering::Relaxed) => Ok(context),
            Some(_) => Err(Code::CONTEXT_IS_DESTROYED),
            None => Err(no_context()),
        })
    })
}

/// Returns the driver of the current context of the calling thread, if there is one.
#[inline]
pub(crate) fn current_driver() -> Option<&'static Driver> {
    look(|current| current.map(|current| current.driver))
}

/// Returns why there is no current context.
#[cold]
fn no_context() -> Code {
    // The thread that calls host functions has none.
    host_function::refuse_within()
        .err()
        .unwrap_or(Code::INVALID_CONTEXT)
}

/// Returns the context of a handle, of whatever device.
pub(crate) fn find(driver: &'static Driver, handle: usize) -> Answer<Arc<Context>> {
    let found = driver
        .owner_of(handle)
        .contexts
        .lock()
        .table
        .get(&handle)
        .cloned();
    found.ok_or(Code::INVALID_CONTEXT)
}

impl Contexts {
    fn make(&mut self, driver: &'static Driver, is_primary: bool, flags: u32) -> Arc<Context> {
        let made = Arc::new(Context::new(driver, is_primary, flags));
        self.table.insert(made.handle, Arc::clone(&made));
        made
    }
}

impl Context {
    fn new(driver: &'static Driver, is_primary: bool, flags: u32) -> Self {
        let handle = driver.fresh_handle();
        Self {
            handle,
            driver,
            is_primary,
            flags: AtomicU32::new(flags),
            limits: Mutex::default(),
            default_stream: Arc::new(Stream::default_of(handle, true)),
            thread_stream: Arc::new(Stream::default_of(handle, false)),
            is_alive: AtomicBool::new(true),
            users: AtomicU32::new(1),
        }
    }

    /// Returns the number of its device.
    fn device(&self) -> i32 {
        self.driver.ordinal as i32
    }

    /// Returns whether the context has not been destroyed.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Relaxed)
    }

    /// Returns whether the context is current to the calling thread.
    fn is_current(&self) -> bool {
        look(|current| current.is_some_and(|current| current.handle == self.handle))
    }
}

/// Refuses flags of contexts that are unknown, or ask for more than one way to wait.
fn check_flags(flags: u32) -> Answer {
    let is_known = flags & !FLAGS == 0 && matches!(flags & SCHEDULING, 0 | 1 | 2 | 4);
    is_known.then_some(()).ok_or(Code::INVALID_VALUE)
}

impl Driver {
    fn create_context(&'static self, flags: u32) -> Answer<Arc<Context>> {
        check_flags(flags)?;
        Ok(self.contexts.lock().make(self, false, flags))
    }

    /// Ends a context after its work, with all that it has.
    fn tear_down(&self, context: &Context) {
        // Before the wait: it ends loops of graphs.
        context.is_alive.store(false, Ordering::Relaxed);
        // After a fault there is nothing to wait for.
        let _ = self.rings.drain(self);
        self.conditions.forget_done(self);
        self.contexts.lock().table.remove(&context.handle);
        context.limits.lock().clear();
        self.captures.end_of_context(context.handle);
        let streams = self.streams.lock().end_of_context(context.handle);
        self.rings
            .forget_streams(|stream| stream.context == context.handle);
        drop(streams);
        self.arrays.end_of_context(self, context.handle);
        self.memory.end_of_context(self, context.handle);
        self.modules.end_of_context(&self.rings, context.handle);
        self.events.end_of_context(context.handle);
        self.end_peers_of(context.handle);
    }
}

fn create_current(context: Out<usize>, flags: u32, device: i32) -> u32 {
    call_on_unless_faulted(device, |driver| {
        if context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let made = driver.create_context(flags)?;
        context.set(made.handle)?;
        on_stack(|stack| stack.push(made))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: Out<usize>, flags: u32, device: i32) -> u32 {
    create_current(context, flags, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v3(
    context: Out<usize>,
    affinities: usize,
    count: i32,
    flags: u32,
    device: i32,
) -> u32 {
    // A part of the multiprocessors is for clients of MPS alone.
    if count > 0 {
        return match affinities {
            0 => Code::INVALID_VALUE.0,
            _ => Code::UNSUPPORTED_EXEC_AFFINITY.0,
        };
    }
    create_current(context, flags, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v4(
    context: Out<usize>,
    parameters: In<ContextParameters>,
    flags: u32,
    device: i32,
) -> u32 {
    let special = !parameters.is_null()
        && parameters
            .get()
            .is_ok_and(|given| given.affinities_count != 0 || given.graphics != 0);
    if special {
        return Code::NOT_SUPPORTED.0;
    }
    create_current(context, flags, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: usize) -> u32 {
    call(|driver| {
        host_function::refuse_within()?;
        let found = find_given(driver, context)?;
        if found.is_primary {
            return Err(Code::INVALID_CONTEXT);
        }
        found.driver.tear_down(&found);
        leave(context)?;
        found.driver.check_sticky()
    })
}

/// Takes a context that has ended from the calling thread, if it is current.
fn leave(context: usize) -> Answer {
    on_stack(|stack| {
        if stack.last().is_some_and(|last| last.handle == context) {
            stack.pop();
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> u32 {
    call_of(context, |driver| {
        let found = match context {
            0 => None,
            handle => Some(find(driver, handle)?),
        };
        on_stack(|stack| {
            stack.pop();
            stack.extend(found);
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: Out<usize>) -> u32 {
    call(|_| context.set(look(|current| current.map_or(0, |current| current.handle))))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> u32 {
    call_of(context, |driver| {
        let found = find_given(driver, context)?;
        on_stack(|stack| stack.push(found))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: Out<usize>) -> u32 {
    call(|_| {
        let top = on_stack(Vec::pop)?;
        context.set_if_wanted(top.ok_or(Code::INVALID_CONTEXT)?.handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<i32>) -> u32 {
    call(|driver| {
        device.set(with_current(driver, |current| {
            current.map(Context::device)
        })?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice_v2(device: Out<i32>, context: usize) -> u32 {
    call(|driver| {
        let of_context = |context: Answer<&Context>| context.map(Context::device);
        device.set(with_given_or_current(driver, context, of_context)?)
    })
}

/// Returns the context of a handle, which is to be given.
fn find_given(driver: &'static Driver, handle: usize) -> Answer<Arc<Context>> {
    match handle {
        0 => Err(Code::INVALID_VALUE),
        handle => find(driver, handle),
    }
}

/// Calls `call` with the context of a handle, or with the current one if the handle is 0.
fn with_given_or_current<T>(
    driver: &'static Driver,
    handle: usize,
    call: impl FnOnce(Answer<&Context>) -> T,
) -> T {
    match handle {
        0 => with_current(driver, call),
        handle => call(find(driver, handle).as_deref().map_err(|code| *code)),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetId(context: usize, id: Out<u64>) -> u32 {
    call(|driver| {
        let handle = |context: Answer<&Context>| context.map(|context| context.handle);
        id.set(with_given_or_current(driver, context, handle)? as u64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetFlags(flags: Out<u32>) -> u32 {
    call_in_context(|_, context| flags.set(context.flags.load(Ordering::Relaxed)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(flags: u32) -> u32 {
    call_in_context(|_, context| {
        check_flags(flags)?;
        context.flags.store(flags, Ordering::Relaxed);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetApiVersion(context: usize, version: Out<u32>) -> u32 {
    call(|driver| {
        if context != 0 {
            find(driver, context)?;
        }
        version.set(API_VERSION)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    call_in_context(|driver, context| {
        driver.captures.check_none_in(context.handle)?;
        driver.rings.drain(driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize_v2(context: usize) -> u32 {
    call_of(context, |driver| {
        let handle = |context: Answer<&Context>| context.map(|context| context.handle);
        let context = with_given_or_current(driver, context, handle)?;
        driver.captures.check_none_in(context)?;
        driver.rings.drain(driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> u32 {
    call_in_context(|driver, _| {
        least.set_if_wanted(0);
        greatest.set_if_wanted(driver.priorities.greatest());
        Ok(())
    })
}
