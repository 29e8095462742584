//! Streams (CUDA driver API, "Stream Management").
//!
//! A stream is a name and the number of its last submission. Work of all streams is in one ring, in
//! the order in which it was submitted: an order that every program must expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::boundary::Out;
use crate::context::{Context, PRIORITIES};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::handles::{self, Handles};
use crate::ring::Number;
use crate::work::Work;

/// Handle of the legacy default stream, as an alternative to 0.
const LEGACY: usize = 1;
/// Handle of the calling thread's own default stream.
const PER_THREAD: usize = 2;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// A stream.
pub(crate) struct Stream {
    /// Handle of its context.
    pub(crate) context: usize,
    pub(crate) handle: usize,
    pub(crate) is_default: bool,
    flags: u32,
    priority: i32,
    last: AtomicU64,
}

/// All streams of the process, except those that each context has.
#[derive(Default)]
pub(crate) struct Streams {
    table: Handles<Stream>,
}

impl Streams {
    /// Forgets the streams of a context.
    pub(crate) fn end_of_context(&mut self, context: usize) {
        self.table.take(|stream| stream.context == context);
    }

    /// Refuses what a context cannot do while one of its streams is being captured.
    pub(crate) fn check_no_capture(&self, _context: usize) -> Answer {
        Ok(())
    }
}

/// Returns the stream of a handle, in the current context.
pub(crate) fn find(driver: &Driver, context: &Context, handle: usize) -> Answer<Arc<Stream>> {
    match handle {
        0 | LEGACY => Ok(Arc::clone(&context.default_stream)),
        PER_THREAD => Ok(Arc::clone(&context.thread_stream)),
        handle => {
            let found = driver.streams.lock().table.get(handle);
            found.ok_or(Code::INVALID_HANDLE)
        }
    }
}

impl Stream {
    /// Returns the legacy or the per-thread default stream of a context.
    pub(crate) fn default_of(context: usize, is_legacy: bool) -> Self {
        Self {
            context,
            handle: if is_legacy { LEGACY } else { PER_THREAD },
            is_default: is_legacy,
            flags: 0,
            priority: 0,
            last: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.is_capturing()
    }

    /// Returns whether the stream is being captured.
    #[inline]
    #[expect(clippy::unused_self, reason = "capture is a part of its own")]
    pub(crate) const fn is_capturing(&self) -> bool {
        false
    }

    /// Submits work, or notes it where the stream is being captured.
    pub(crate) fn submit(&self, driver: &Driver, work: Work) -> Answer {
        self.submit_packets(driver, |commands| work.write(commands))
            .map(drop)
    }

    /// Submits the packets that `write` writes. The caller has checked that the stream is not being
    /// captured.
    #[inline]
    pub(crate) fn submit_packets(
        &self,
        driver: &Driver,
        write: impl FnOnce(
            &mut causeway_shim_linux::shim::CommandBuffer<'static>,
        ) -> Result<(), causeway_shim_linux::shim::SubmitError>,
    ) -> Answer<Number> {
        let number = driver.ring.submit(driver, write)?;
        self.last.fetch_max(number, Ordering::Relaxed);
        Ok(number)
    }

    /// Returns the number of the last submission of this stream.
    pub(crate) fn last(&self) -> Number {
        self.last.load(Ordering::Relaxed)
    }
}

fn create(into: Out<usize>, flags: u32, priority: i32) -> u32 {
    call_in_context(|driver, context| {
        if into.is_null() || flags & !NON_BLOCKING != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = handles::fresh();
        let stream = Stream {
            context: context.handle,
            handle,
            is_default: false,
            flags,
            priority: priority.clamp(PRIORITIES.1, PRIORITIES.0),
            last: AtomicU64::new(0),
        };
        driver.streams.lock().table.put(handle, Arc::new(stream));
        into.set(handle)
    })
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
extern "C" fn cuStreamDestroy_v2(stream: usize) -> u32 {
    call_in_context(|driver, _| {
        // Its work goes on, as CUDA documents.
        let removed = driver.streams.lock().table.remove(stream);
        removed.map(drop).ok_or(Code::INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = find(driver, context, stream)?;
        match stream.is_default {
            true => driver.ring.drain(driver),
            false => driver.ring.wait(driver, stream.last()),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = find(driver, context, stream)?;
        let number = match stream.is_default {
            true => driver.ring.last(),
            false => stream.last(),
        };
        match driver.ring.is_done(driver, number)? {
            true => Ok(()),
            false => Err(Code::NOT_READY),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: usize, flags: Out<u32>) -> u32 {
    call_in_context(|driver, context| flags.set(find(driver, context, stream)?.flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: usize, priority: Out<i32>) -> u32 {
    call_in_context(|driver, context| priority.set(find(driver, context, stream)?.priority))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: usize, context: Out<usize>) -> u32 {
    call_in_context(|driver, current| context.set(find(driver, current, stream)?.context))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetId(stream: usize, id: Out<u64>) -> u32 {
    call_in_context(|driver, context| {
        let stream = find(driver, context, stream)?;
        // The default streams of different contexts have one handle.
        let context = (stream.context as u64) << 8;
        id.set(if stream.handle <= PER_THREAD {
            context | stream.handle as u64
        } else {
            stream.handle as u64
        })
    })
}
