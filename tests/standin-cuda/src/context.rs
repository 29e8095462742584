//! Contexts (CUDA driver API, "Context Management").

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use causeway_software::Multiprocessors;

use crate::boundary::{In, Out};
use crate::driver::{Driver, call, call_in_context, call_unless_faulted, lock};
use crate::error::{Answer, Code};
use crate::handles;
use crate::queue::Queue;
use crate::stream::{PRIORITY_MIN, Stream};
use crate::structures::ContextParameters;

/// Scheduling (bits 0 to 2), host mapping, resizing of local memory, dumps and synchronous copies.
pub(crate) const FLAGS: u32 = 0xff;

/// A context.
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    /// Those that its kernels run on.
    pub(crate) multiprocessors: Multiprocessors,
    pub(crate) default_stream: Arc<Stream>,
    flags: u32,
    limits: Mutex<HashMap<u32, usize>>,
    _counted: Counted,
}

/// Counts a context as long as it exists.
struct Counted(&'static Driver);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.ledger.leave();
    }
}

/// Where a context comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Primary,
    Created,
    Green,
}

thread_local! {
    /// The contexts that the calling thread has made current, the latest last.
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The current context of the calling thread.
pub(crate) fn current(driver: &Driver) -> Answer<Arc<Context>> {
    let handle = STACK.with_borrow(|stack| stack.last().copied());
    let handle = handle.ok_or(Code::INVALID_CONTEXT)?;
    let found = driver.state().contexts.get(handle);
    found.ok_or(Code::CONTEXT_IS_DESTROYED)
}

/// All multiprocessors of a device.
pub(crate) fn whole_device(driver: &Driver) -> Multiprocessors {
    Multiprocessors {
        first: 0,
        count: driver.settings.multiprocessors,
        of: driver.settings.multiprocessors,
    }
}

/// Makes a context, current for nobody.
pub(crate) fn create(
    driver: &'static Driver,
    (handle, kind): (usize, Kind),
    device: usize,
    flags: u32,
    multiprocessors: Multiprocessors,
) -> Answer<Arc<Context>> {
    driver.ledger.enter().map_err(|e| {
        eprintln!("stand-in driver: cannot account for a context: {e}");
        Code::OPERATING_SYSTEM
    })?;
    let counted = Counted(driver);
    let queue = Queue::start(driver, device, multiprocessors, 0)?;
    let default_stream = Stream::new((handle, device), queue, (true, true, 0));
    Ok(Arc::new(Context {
        handle,
        device,
        kind,
        multiprocessors,
        default_stream: Arc::new(default_stream),
        flags,
        limits: Mutex::default(),
        _counted: counted,
    }))
}

fn create_current(context: Out<usize>, flags: u32, device: i32) -> u32 {
    call_unless_faulted(|driver| {
        let device = driver.device(device)?;
        if context.is_null() || flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = handles::fresh();
        let whole = whole_device(driver);
        let made = create(driver, (handle, Kind::Created), device, flags, whole)?;
        driver.state().contexts.put(handle, made);
        STACK.with_borrow_mut(|stack| stack.push(handle));
        context.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: Out<usize>, flags: u32, device: i32) -> u32 {
    create_current(context, flags, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v3(
    context: Out<usize>,
    _affinities: usize,
    affinities: i32,
    flags: u32,
    device: i32,
) -> u32 {
    if affinities != 0 {
        return Code::NOT_SUPPORTED.0;
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
        destroy(driver, context, Kind::Created)?;
        driver.check_sticky()
    })
}

/// Ends a context of a kind, with all that it has.
pub(crate) fn destroy(driver: &Driver, handle: usize, kind: Kind) -> Answer {
    let context = driver.state().contexts.get(handle);
    if context.is_none_or(|context| context.kind != kind) {
        return Err(Code::INVALID_CONTEXT);
    }
    tear_down(driver, handle);
    STACK.with_borrow_mut(|stack| {
        if stack.last() == Some(&handle) {
            stack.pop();
        }
    });
    Ok(())
}

/// Waits for the work of a context, and takes away what it has.
pub(crate) fn tear_down(driver: &Driver, handle: usize) {
    let queues = driver.queues(Some(handle));
    for queue in &queues {
        queue.end().wait();
        queue.finish();
    }
    let mut state = driver.state();
    let context = state.contexts.remove(handle);
    let streams = state.streams.take(|stream| stream.context == handle);
    let events = state.events.take(|event| event.context == handle);
    let kernels = state.kernels.take(|kernel| kernel.context == handle);
    let modules = state.modules.take(|module| module.context == handle);
    let arrays = state.arrays.take(|array| array.context == handle);
    let textures = state.textures.take(|texture| texture.context == handle);
    let mut memory = Vec::new();
    for start in state.addresses.allocated_by(handle) {
        let mapped = state.addresses.unmap(driver, start);
        if let Some((start, bytes)) = state.addresses.reservation(start) {
            // Nothing else is in the reservation of an allocation.
            let _ = state.addresses.free(start, bytes);
        }
        memory.push(mapped);
    }
    drop(state);
    drop((context, streams, events, kernels, modules, memory));
    drop((textures, arrays));
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> u32 {
    call_unless_faulted(|driver| {
        if context != 0 && driver.state().contexts.get(context).is_none() {
            return Err(Code::INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: Out<usize>) -> u32 {
    call(|_| {
        let top = STACK.with_borrow(|stack| stack.last().copied());
        context.set(top.unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> u32 {
    call_unless_faulted(|driver| {
        if driver.state().contexts.get(context).is_none() {
            return Err(Code::INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: Out<usize>) -> u32 {
    call(|_| {
        let top = STACK.with_borrow_mut(Vec::pop);
        context.set_if_wanted(top.ok_or(Code::INVALID_CONTEXT)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<i32>) -> u32 {
    call_in_context(|_, context| device.set(context.device as i32))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetId(context: usize, id: Out<u64>) -> u32 {
    call(|driver| {
        let context = match context {
            0 => current(driver)?,
            given => driver
                .state()
                .contexts
                .get(given)
                .ok_or(Code::INVALID_CONTEXT)?,
        };
        id.set(context.handle as u64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetFlags(flags: Out<u32>) -> u32 {
    call_in_context(|_, context| flags.set(context.flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetApiVersion(context: usize, version: Out<u32>) -> u32 {
    call(|driver| {
        if context != 0 && driver.state().contexts.get(context).is_none() {
            return Err(Code::INVALID_CONTEXT);
        }
        version.set(3020)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    call_in_context(|driver, context| {
        let handle = context.handle;
        let capturing = {
            let state = driver.state();
            let mut streams = state.streams.all();
            streams.any(|(_, stream)| stream.context == handle && stream.capture().is_some())
        };
        if capturing {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        for queue in driver.queues(Some(handle)) {
            queue.end().wait();
        }
        driver.print();
        driver.check_sticky()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> u32 {
    call_in_context(|_, _| {
        least.set_if_wanted(0);
        greatest.set_if_wanted(PRIORITY_MIN);
        Ok(())
    })
}

/// What a limit is before it is set (`CUlimit`).
fn usual_limit(limit: u32) -> Answer<usize> {
    Ok(match limit {
        0 => 1024,
        1 => 1 << 20,
        2 => 8 << 20,
        3 => 2,
        4 => 2048,
        5 => 128,
        6 => 0,
        _ => return Err(Code::UNSUPPORTED_LIMIT),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(limit: u32, value: usize) -> u32 {
    call_in_context(|_, context| {
        usual_limit(limit)?;
        lock(&context.limits).insert(limit, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetLimit(value: Out<usize>, limit: u32) -> u32 {
    call_in_context(|_, context| {
        let usual = usual_limit(limit)?;
        let set = lock(&context.limits).get(&limit).copied();
        value.set(set.unwrap_or(usual))
    })
}
