//! Events: positions in streams, and the times at which they were reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::boundary::Out;
use crate::capture::Capture;
use crate::driver::{Driver, call_in_context, lock};
use crate::error::{Answer, Code};
use crate::queue::Position;
use crate::stream;
use crate::work::Work;

/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: u32 = 2;
/// Blocking sync, disabled timing, interprocess.
const FLAGS: u32 = 7;

/// An event of a context.
pub(crate) struct Event {
    pub(crate) context: usize,
    timing: bool,
    recorded: Mutex<Recorded>,
}

/// Where an event was recorded last.
#[derive(Clone, Default)]
pub(crate) enum Recorded {
    #[default]
    Nowhere,
    At(Position, Arc<AtomicU64>),
    /// In a stream that is being captured.
    In(Arc<Capture>),
}

impl Event {
    /// What was recorded last.
    pub(crate) fn recorded(&self) -> Recorded {
        lock(&self.recorded).clone()
    }

    fn done(&self) -> Answer<Option<u64>> {
        match self.recorded() {
            Recorded::Nowhere => Ok(Some(0)),
            Recorded::In(_) => Err(Code::CAPTURED_EVENT),
            Recorded::At(position, time) => {
                Ok(position.is_done().then(|| time.load(Ordering::Acquire)))
            }
        }
    }
}

fn find(driver: &Driver, handle: usize) -> Answer<Arc<Event>> {
    driver
        .state()
        .events
        .get(handle)
        .ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<usize>, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        if event.is_null() || flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = Event {
            context: context.handle,
            timing: flags & DISABLE_TIMING == 0,
            recorded: Mutex::default(),
        };
        event.set(driver.state().events.insert(Arc::new(made)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let event = find(driver, event)?;
        let stream = stream::find(driver, context, stream)?;
        if event.context != stream.context {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = match stream.capture() {
            Some(capture) => Recorded::In(capture),
            None => {
                let time = Arc::new(AtomicU64::new(0));
                let position = stream.submit(driver, Work::Stamp(Arc::clone(&time)))?;
                Recorded::At(position, time)
            }
        };
        *lock(&event.recorded) = recorded;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: usize, stream: usize, flags: u32) -> u32 {
    if flags > 1 {
        return Code::INVALID_VALUE.0;
    }
    cuEventRecord(event, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> u32 {
    call_in_context(|driver, _| {
        let done = find(driver, event)?.done()?;
        done.map(drop).ok_or(Code::NOT_READY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> u32 {
    call_in_context(|driver, _| {
        match find(driver, event)?.recorded() {
            Recorded::Nowhere => {}
            Recorded::In(_) => return Err(Code::CAPTURED_EVENT),
            Recorded::At(position, _) => position.wait(),
        }
        driver.print();
        driver.check_sticky()
    })
}

/// Milliseconds between two events.
#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) -> u32 {
    call_in_context(|driver, _| {
        let (start, end) = (find(driver, start)?, find(driver, end)?);
        let is_timed =
            |event: &Event| event.timing && !matches!(event.recorded(), Recorded::Nowhere);
        if !is_timed(&start) || !is_timed(&end) {
            return Err(Code::INVALID_HANDLE);
        }
        let start = start.done()?.ok_or(Code::NOT_READY)?;
        let end = end.done()?.ok_or(Code::NOT_READY)?;
        let span_ns = end.wrapping_sub(start).cast_signed();
        milliseconds.set((span_ns as f64 / 1e6) as f32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: usize, end: usize) -> u32 {
    cuEventElapsedTime(milliseconds, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.state().events.remove(event);
        removed.map(drop).ok_or(Code::INVALID_HANDLE)
    })
}
