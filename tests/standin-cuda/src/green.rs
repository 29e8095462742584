//! Green contexts (CUDA driver API, "Green Contexts"): some of the multiprocessors.

use std::sync::Arc;

use causeway_software::Multiprocessors;

use crate::boundary::{In, Out};
use crate::context::{self, Context, Kind};
use crate::driver::{Driver, State, call, call_in_context, call_unless_faulted};
use crate::error::{Answer, Code};
use crate::handles;
use crate::primary;
use crate::stream;
use crate::structures::Resource;

/// `CU_DEV_RESOURCE_TYPE_SM`
const MULTIPROCESSORS: u32 = 1;
/// Smallest partition, and what partitions are multiples of, on compute capability 9.0.
const PARTITION: u32 = 8;
/// The same where blocks of a cluster need not be neighbours (`…SPLIT_IGNORE_SM_COSCHEDULING`).
const PARTITION_ALONE: u32 = 2;
/// Says in a resource's padding that this driver has made it.
const MARK: u32 = 0x5ca_d11e;

/// Resources for a context.
pub(crate) struct Description {
    device: usize,
    multiprocessors: Multiprocessors,
}

fn resource(device: usize, first: u32, count: u32) -> Resource {
    Resource {
        kind: MULTIPROCESSORS,
        mark: MARK,
        device: device as u32,
        first,
        padding: [0; 80],
        multiprocessors: count,
        partition_min: PARTITION,
        alignment: PARTITION,
        rest: [0; 36],
    }
}

/// No resource: what is left when nothing is left.
fn nothing() -> Resource {
    Resource {
        kind: 0,
        ..resource(0, 0, 0)
    }
}

fn check(driver: &Driver, given: &Resource) -> Answer<usize> {
    let end = given.first.checked_add(given.multiprocessors);
    let is_ours = given.mark == MARK
        && end.is_some_and(|end| end <= driver.settings.multiprocessors)
        && given.multiprocessors != 0;
    match given.kind {
        MULTIPROCESSORS if is_ours => driver.device(given.device.cast_signed()),
        MULTIPROCESSORS => Err(Code::INVALID_VALUE),
        _ => Err(Code::INVALID_RESOURCE_TYPE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDevResource(device: i32, into: Out<Resource>, kind: u32) -> u32 {
    call_unless_faulted(|driver| {
        let device = driver.device(device)?;
        if kind != MULTIPROCESSORS {
            return Err(Code::INVALID_RESOURCE_TYPE);
        }
        into.set(resource(device, 0, driver.settings.multiprocessors))
    })
}

/// Groups of at least so many multiprocessors, and what is left. Without room for groups: how many
/// there could be.
#[unsafe(no_mangle)]
extern "C" fn cuDevSmResourceSplitByCount(
    groups: Out<Resource>,
    count: Out<u32>,
    input: In<Resource>,
    remaining: Out<Resource>,
    flags: u32,
    least: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        let whole = input.get()?;
        let device = check(driver, &whole)?;
        if flags > 3 || count.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let unit = if flags & 1 != 0 {
            PARTITION_ALONE
        } else {
            PARTITION
        };
        if least > whole.multiprocessors {
            return Err(Code::INVALID_RESOURCE_CONFIGURATION);
        }
        let size = least.max(1).next_multiple_of(unit);
        let possible = whole.multiprocessors / size;
        if possible == 0 {
            return Err(Code::INVALID_RESOURCE_CONFIGURATION);
        }
        if groups.is_null() {
            return count.set(possible);
        }
        let made = count.get()?.min(possible);
        for index in 0..made {
            let first = whole.first + index * size;
            groups.set_at(index as usize, resource(device, first, size))?;
        }
        let (first, left) = (
            whole.first + made * size,
            whole.multiprocessors - made * size,
        );
        remaining.set_if_wanted(if left == 0 {
            nothing()
        } else {
            resource(device, first, left)
        });
        count.set(made)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevResourceGenerateDesc(
    description: Out<usize>,
    resources: In<Resource>,
    count: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        if description.is_null() || count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let resources = resources.list(count as usize)?;
        let first = resources.iter().map(|given| given.first).min().unwrap_or(0);
        let mut sum = 0_u32;
        let mut device = 0;
        for given in &resources {
            device = check(driver, given)?;
            sum = sum.saturating_add(given.multiprocessors);
        }
        // Groups of one split lie side by side; others cannot be one context here.
        let last = resources
            .iter()
            .map(|given| given.first + given.multiprocessors);
        if last.max() != first.checked_add(sum) {
            return Err(Code::INVALID_RESOURCE_CONFIGURATION);
        }
        let made = Description {
            device,
            multiprocessors: Multiprocessors {
                first,
                count: sum,
                of: driver.settings.multiprocessors,
            },
        };
        description.set(driver.state().descriptions.insert(Arc::new(made)))
    })
}

/// The default stream must be asked for. The device's primary context is kept meanwhile.
#[unsafe(no_mangle)]
extern "C" fn cuGreenCtxCreate(
    green: Out<usize>,
    description: usize,
    device: i32,
    flags: u32,
) -> u32 {
    call_unless_faulted(|driver| {
        let device = driver.device(device)?;
        let found = driver.state().descriptions.get(description);
        let found = found.ok_or(Code::INVALID_VALUE)?;
        if green.is_null() || flags != 1 || found.device != device {
            return Err(Code::INVALID_VALUE);
        }
        primary::retain(driver, device)?;
        let handle = handles::fresh();
        let kind = (handle, Kind::Green);
        let made = context::create(driver, kind, device, 0, found.multiprocessors)?;
        driver.state().contexts.put(handle, made);
        green.set(handle)
    })
}

fn find(state: &State, green: usize) -> Answer<Arc<Context>> {
    let found = state.contexts.get(green);
    let found = found.filter(|context| context.kind == Kind::Green);
    found.ok_or(Code::INVALID_CONTEXT)
}

#[unsafe(no_mangle)]
extern "C" fn cuGreenCtxDestroy(green: usize) -> u32 {
    call(|driver| {
        let device = find(&driver.state(), green)?.device;
        context::destroy(driver, green, Kind::Green)?;
        // The primary context may have been reset meanwhile.
        let _ = primary::release(driver, device);
        driver.check_sticky()
    })
}

/// A green context and the context that is made current for it have one handle here.
#[unsafe(no_mangle)]
extern "C" fn cuCtxFromGreenCtx(context: Out<usize>, green: usize) -> u32 {
    call_unless_faulted(|driver| {
        find(&driver.state(), green)?;
        context.set(green)
    })
}

/// Streams of green contexts do not wait for a default stream: that must be asked for.
#[unsafe(no_mangle)]
extern "C" fn cuGreenCtxStreamCreate(
    stream: Out<usize>,
    green: usize,
    flags: u32,
    priority: i32,
) -> u32 {
    call_unless_faulted(|driver| {
        let context = find(&driver.state(), green)?;
        if stream.is_null() || flags != stream::NON_BLOCKING {
            return Err(Code::INVALID_VALUE);
        }
        stream.set(stream::create_in(driver, &context, flags, priority)?)
    })
}

fn resource_of(context: &Context) -> Resource {
    let Multiprocessors { first, count, .. } = context.multiprocessors;
    resource(context.device, first, count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGreenCtxGetDevResource(green: usize, into: Out<Resource>, kind: u32) -> u32 {
    call_unless_faulted(|driver| {
        let context = find(&driver.state(), green)?;
        if kind != MULTIPROCESSORS {
            return Err(Code::INVALID_RESOURCE_TYPE);
        }
        into.set(resource_of(&context))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevResource(handle: usize, into: Out<Resource>, kind: u32) -> u32 {
    call_in_context(|driver, current| {
        let context = match handle {
            0 => Arc::clone(current),
            given => driver
                .state()
                .contexts
                .get(given)
                .ok_or(Code::INVALID_CONTEXT)?,
        };
        if kind != MULTIPROCESSORS {
            return Err(Code::INVALID_RESOURCE_TYPE);
        }
        into.set(resource_of(&context))
    })
}
