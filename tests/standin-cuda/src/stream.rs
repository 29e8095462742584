//! Streams of contexts (CUDA driver API, "Stream Management" and "Stream Memory Operations").

use std::sync::{Arc, Mutex};

use crate::boundary::{In, Out};
use crate::capture::Capture;
use crate::context::Context;
use crate::driver::{Driver, call_in_context, lock};
use crate::error::{Answer, Code};
use crate::event::Recorded;
use crate::queue::{Position, Queue};
use crate::structures::BatchOperation;
use crate::work::{Condition, HostCall, Work};

/// Handle of the legacy default stream, as an alternative to 0.
const LEGACY: usize = 1;
/// Handle of the calling thread's own default stream.
const PER_THREAD: usize = 2;
/// `CU_STREAM_NON_BLOCKING`
pub(crate) const NON_BLOCKING: u32 = 1;
/// The highest priority; 0 is the lowest.
pub(crate) const PRIORITY_MIN: i32 = -5;

/// A stream.
pub(crate) struct Stream {
    /// Handle of its context.
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) queue: Arc<Queue>,
    /// The legacy default stream of its context.
    pub(crate) is_default: bool,
    /// Whether it and the default stream wait for each other.
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    /// The capture that it is part of.
    capture: Mutex<Option<Arc<Capture>>>,
}

impl Stream {
    /// A stream of a context.
    pub(crate) fn new(
        (context, device): (usize, usize),
        queue: Arc<Queue>,
        (is_default, blocking, priority): (bool, bool, i32),
    ) -> Self {
        Self {
            context,
            device,
            queue,
            is_default,
            blocking,
            priority,
            capture: Mutex::new(None),
        }
    }

    /// The capture that the stream is part of, if any.
    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.capture).clone()
    }

    /// Makes the stream part of a capture, or of none.
    pub(crate) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        *lock(&self.capture) = capture;
    }

    /// Submits work, or notes it where the stream is being captured. The position is that of the
    /// work, or, in a capture, that of nothing.
    pub(crate) fn submit(&self, driver: &Driver, work: Work) -> Answer<Position> {
        self.submit_after(driver, work, Vec::new())
    }

    /// The same for work that waits for other positions too.
    pub(crate) fn submit_after(
        &self,
        driver: &Driver,
        work: Work,
        mut after: Vec<Position>,
    ) -> Answer<Position> {
        if let Some(capture) = self.capture() {
            capture.add(work)?;
            return Ok(self.queue.end());
        }
        after.extend(self.barrier(driver)?);
        Ok(self.queue.submit(work, after))
    }

    /// What the legacy default stream makes a stream wait for (CUDA programming guide, "Implicit
    /// Synchronization").
    fn barrier(&self, driver: &Driver) -> Answer<Vec<Position>> {
        if !self.blocking {
            return Ok(Vec::new());
        }
        let state = driver.state();
        if !self.is_default {
            let context = state.contexts.get(self.context);
            return Ok(context
                .iter()
                .map(|context| context.default_stream.queue.end())
                .collect());
        }
        let others = state.streams.all().map(|(_, stream)| stream);
        let others = others.filter(|stream| stream.context == self.context && stream.blocking);
        others
            .map(|stream| match stream.capture() {
                Some(_) => Err(Code::STREAM_CAPTURE_IMPLICIT),
                None => Ok(stream.queue.end()),
            })
            .collect()
    }

    /// Refuses what a stream cannot do while it is being captured.
    pub(crate) fn check_not_capturing(&self) -> Answer {
        match self.capture() {
            Some(_) => Err(Code::STREAM_CAPTURE_UNSUPPORTED),
            None => Ok(()),
        }
    }
}

/// The stream of a handle, in the current context.
pub(crate) fn find(driver: &Driver, context: &Context, handle: usize) -> Answer<Arc<Stream>> {
    if matches!(handle, 0 | LEGACY | PER_THREAD) {
        return Ok(Arc::clone(&context.default_stream));
    }
    driver
        .state()
        .streams
        .get(handle)
        .ok_or(Code::INVALID_HANDLE)
}

fn create(stream: Out<usize>, flags: u32, priority: i32) -> u32 {
    call_in_context(|driver, context| {
        if stream.is_null() || flags & !NON_BLOCKING != 0 {
            return Err(Code::INVALID_VALUE);
        }
        stream.set(create_in(driver, context, flags, priority)?)
    })
}

/// Makes a stream in a context. Priorities out of range are brought into it.
pub(crate) fn create_in(
    driver: &'static Driver,
    context: &Context,
    flags: u32,
    priority: i32,
) -> Answer<usize> {
    let priority = priority.clamp(PRIORITY_MIN, 0);
    let queue = Queue::start(driver, context.device, context.multiprocessors, priority)?;
    let blocking = flags & NON_BLOCKING == 0;
    let made = Stream::new(
        (context.handle, context.device),
        queue,
        (false, blocking, priority),
    );
    Ok(driver.state().streams.insert(Arc::new(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: Out<usize>, flags: u32) -> u32 {
    create(stream, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32) -> u32 {
    create(stream, flags, priority)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: usize, priority: Out<i32>) -> u32 {
    call_in_context(|driver, context| priority.set(find(driver, context, stream)?.priority))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: usize, context_out: Out<usize>) -> u32 {
    call_in_context(|driver, context| context_out.set(find(driver, context, stream)?.context))
}

/// Returns at once; what was submitted is done all the same.
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.state().streams.remove(stream);
        let removed = removed.ok_or(Code::INVALID_HANDLE)?;
        if let Some(capture) = removed.capture() {
            capture.invalidate();
        }
        removed.queue.finish();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = find(driver, context, stream)?;
        stream.check_not_capturing()?;
        let done = stream.queue.end().is_done();
        driver.check_sticky()?;
        if done { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = find(driver, context, stream)?;
        stream.check_not_capturing()?;
        stream.queue.end().wait();
        driver.print();
        driver.check_sticky()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = find(driver, context, stream)?;
        let event = driver.state().events.get(event);
        let position = match event.ok_or(Code::INVALID_HANDLE)?.recorded() {
            Recorded::Nowhere => return Ok(()),
            Recorded::In(capture) => return capture.join(&stream),
            Recorded::At(position, _) => position,
        };
        if let Some(capture) = stream.capture() {
            // Work outside a capture cannot be waited for in it.
            capture.invalidate();
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let after = vec![position];
        stream.submit_after(driver, Work::Nothing, after).map(drop)
    })
}

/// Refuses flags of a write that this driver does not know: 1 is "no memory barrier".
fn write_work(address: u64, value: u64, width: u32, flags: u32) -> Answer<Work> {
    if flags & !1 != 0 || address == 0 || !address.is_multiple_of(u64::from(width)) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(Work::Write {
        address,
        value,
        width,
    })
}

/// The low bits say how to compare; bit 30 is a flush, which memory here needs not.
fn wait_work(address: u64, value: u64, width: u32, flags: u32) -> Answer<Work> {
    if flags & !((1 << 30) | 3) != 0 || address == 0 || !address.is_multiple_of(u64::from(width)) {
        return Err(Code::INVALID_VALUE);
    }
    let condition = match flags & 3 {
        0 => Condition::GreaterOrEqual,
        1 => Condition::Equal,
        2 => Condition::And,
        _ => Condition::Nor,
    };
    Ok(Work::Wait {
        address,
        value,
        width,
        condition,
    })
}

/// Submits work on a word that the device can reach.
fn submit_on_word(stream: usize, address: u64, width: u32, work: Answer<Work>) -> u32 {
    call_in_context(|driver, context| {
        let work = work?;
        let stream = find(driver, context, stream)?;
        driver.check_device_range(stream.device, address, u64::from(width))?;
        stream.submit(driver, work).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32 {
    submit_on_word(
        stream,
        address,
        4,
        write_work(address, value.into(), 4, flags),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32 {
    submit_on_word(stream, address, 8, write_work(address, value, 8, flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32 {
    submit_on_word(
        stream,
        address,
        4,
        wait_work(address, value.into(), 4, flags),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32 {
    submit_on_word(stream, address, 8, wait_work(address, value, 8, flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBatchMemOp_v2(
    stream: usize,
    count: u32,
    operations: In<BatchOperation>,
    flags: u32,
) -> u32 {
    call_in_context(|driver, context| {
        let stream = find(driver, context, stream)?;
        let work = batch(driver, stream.device, count, operations, flags)?;
        stream.submit(driver, work).map(drop)
    })
}

/// Several operations on words, in order (at most 256, says the API).
pub(crate) fn batch(
    driver: &Driver,
    device: usize,
    count: u32,
    operations: In<BatchOperation>,
    flags: u32,
) -> Answer<Work> {
    if flags != 0 || count == 0 || count > 256 {
        return Err(Code::INVALID_VALUE);
    }
    let mut parts = Vec::new();
    for BatchOperation {
        operation,
        address,
        value,
        flags,
        ..
    } in operations.list(count as usize)?
    {
        let width = if matches!(operation, 4 | 5) { 8 } else { 4 };
        let part = match operation {
            1 | 4 => wait_work(address, value, width, flags)?,
            2 | 5 => write_work(address, value, width, flags)?,
            // A flush of remote writes, a barrier: everything is in order here.
            3 | 6 => continue,
            _ => return Err(Code::INVALID_VALUE),
        };
        driver.check_device_range(device, address, u64::from(width))?;
        parts.push(part);
    }
    Ok(Work::Sequence(parts))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<extern "C" fn(usize)>,
    argument: usize,
) -> u32 {
    call_in_context(|driver, context| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let stream = find(driver, context, stream)?;
        let call = HostCall { function, argument };
        stream.submit(driver, Work::Host(call)).map(drop)
    })
}
