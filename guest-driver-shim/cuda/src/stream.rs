//! Streams (CUDA driver API, "Stream Management").
//!
//! A stream is a name, a ring, and the number of its last submission there. Streams that wait for
//! each other share a ring, in the order in which their work was submitted: an order that every
//! program must expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use causeway_shim_linux::shim::SubmitError;
use parking_lot::Mutex;

use crate::boundary::Out;
use crate::capture::Membership;
use crate::context::{self, Context};
use crate::driver::{Driver, call_in_context, call_with_current_stream, call_with_stream};
use crate::error::{Answer, Code};
use crate::graph::node::Kind;
use crate::handles::Handles;
use crate::ring::{Number, Ring, Writing};
use crate::ring_choice::RINGS_MAX;
use crate::rings::Submission;
use crate::stream_attributes::Attributes;
use crate::structures::Copy3d;
use crate::work::Work;

/// Handle of the legacy default stream, as an alternative to 0.
const LEGACY: usize = 1;
/// Handle of the calling thread's own default stream.
pub(crate) const PER_THREAD: usize = 2;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// A stream.
pub(crate) struct Stream {
    /// Handle of its context.
    pub(crate) context: usize,
    pub(crate) handle: usize,
    /// Whether it is the legacy default stream.
    pub(crate) is_default: bool,
    /// Index of the ring in which its work is.
    ring: u8,
    flags: u32,
    priority: AtomicI32,
    last: AtomicU64,
    /// Whether `membership` is some.
    capturing: AtomicBool,
    /// The capture that the stream is part of.
    pub(crate) membership: Mutex<Option<Membership>>,
    pub(crate) attributes: Mutex<Attributes>,
}

/// All streams of the process, except those that each context has.
#[derive(Default)]
pub(crate) struct Streams {
    table: Handles<Stream>,
}

impl Streams {
    /// Takes out the streams of a context.
    pub(crate) fn end_of_context(&mut self, context: usize) -> Vec<Arc<Stream>> {
        self.table.take(|stream| stream.context == context)
    }
}

/// Returns the stream of a handle, in the current context.
pub(crate) fn find(driver: &Driver, context: &Context, handle: usize) -> Answer<Arc<Stream>> {
    match find_default(context, handle) {
        Some(stream) => Ok(Arc::clone(stream)),
        None => find_created(driver, handle),
    }
}

/// Returns the default stream that a handle means; `None` if it means none.
#[inline]
pub(crate) fn find_default(context: &Context, handle: usize) -> Option<&Arc<Stream>> {
    match handle {
        0 | LEGACY => Some(&context.default_stream),
        PER_THREAD => Some(&context.thread_stream),
        _ => None,
    }
}

/// Returns the index of the ring of a handle's stream: its low bits, unless it means a default
/// stream.
#[inline]
pub(crate) const fn ring_of(handle: usize) -> u8 {
    match handle {
        0..=PER_THREAD => 0,
        handle => (handle % RINGS_MAX) as u8,
    }
}

/// Returns the stream of a handle that means no default stream.
pub(crate) fn find_created(driver: &Driver, handle: usize) -> Answer<Arc<Stream>> {
    let found = driver.streams.lock().table.get(handle);
    found.ok_or(Code::INVALID_HANDLE)
}

/// Returns the context of a stream that is no default stream.
#[cold]
pub(crate) fn context_of(driver: &'static Driver, handle: usize) -> Answer<Arc<Context>> {
    let found = driver.streams.lock().table.get(handle);
    context::find(driver, found.ok_or(Code::INVALID_CONTEXT)?.context)
}

impl Stream {
    fn new(context: usize, handle: usize, flags: u32, priority: i32) -> Self {
        Self {
            context,
            handle,
            is_default: handle == LEGACY,
            ring: ring_of(handle),
            flags,
            priority: AtomicI32::new(priority),
            last: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            membership: Mutex::default(),
            attributes: Mutex::default(),
        }
    }

    /// Returns the legacy or the per-thread default stream of a context.
    pub(crate) fn default_of(context: usize, is_legacy: bool) -> Self {
        let handle = if is_legacy { LEGACY } else { PER_THREAD };
        Self::new(context, handle, 0, 0)
    }

    /// Returns a stream of a context that there is not.
    #[cfg(test)]
    pub(crate) fn for_test(flags: u32) -> Self {
        Self::new(7, crate::handles::fresh(), flags, 0)
    }

    /// Submits work, or notes it where the stream is being captured.
    pub(crate) fn submit(&self, driver: &Driver, work: Work) -> Answer {
        if self.is_capturing() {
            return match Kind::of_work(work) {
                Some(kind) => self.note(kind),
                None => Ok(()),
            };
        }
        self.submit_packets(driver, |writing| work.write(writing))
            .map(drop)
    }

    /// Notes a copy where the stream is being captured.
    pub(crate) fn note_copy(&self, given: &Copy3d, work: Work) -> Answer {
        self.note(Kind::Copy {
            given: Some(Box::new(*given)),
            work,
        })
    }

    /// Submits the packets that `write` writes. The caller has checked that the stream is not being
    /// captured.
    #[inline]
    pub(crate) fn submit_packets(
        &self,
        driver: &Driver,
        write: impl FnOnce(&mut Writing) -> Result<(), SubmitError>,
    ) -> Answer<Submission> {
        self.check_implicit(driver)?;
        let submission = self.ring(driver).submit(driver, write)?;
        self.reach(submission.number);
        Ok(submission)
    }

    /// Submits work for which the caller is about to wait, and returns its number. The caller has
    /// checked that the stream is not being captured.
    pub(crate) fn submit_awaited(&self, driver: &Driver, work: &Work) -> Answer<Submission> {
        self.check_implicit(driver)?;
        let ring = self.ring(driver);
        let submission = ring.submit_and_announce(driver, |writing| work.write(writing))?;
        self.reach(submission.number);
        Ok(submission)
    }

    /// Makes later work of the stream wait for a submission, of whatever stream.
    pub(crate) fn follow(&self, driver: &Driver, submission: Submission) -> Answer {
        let Submission { ring, number } = submission;
        if ring == self.ring {
            self.reach(number);
            return Ok(());
        }
        let other = driver.rings.of(ring);
        if other.finished() >= number {
            return Ok(());
        }
        other.announce(driver, number)?;
        let wait = |writing: &mut Writing| writing.commands.acquire(other.fence(), number);
        self.submit_packets(driver, wait).map(drop)
    }

    /// Returns the index of the ring in which its work is.
    pub(crate) const fn ring_index(&self) -> u8 {
        self.ring
    }

    #[inline]
    fn ring<'d>(&self, driver: &'d Driver) -> &'d Ring {
        driver.rings.of(self.ring)
    }

    /// Makes the stream last at least until a submission to its ring.
    #[inline]
    pub(crate) fn reach(&self, number: Number) {
        self.last.fetch_max(number, Ordering::Relaxed);
    }

    /// Returns the submission with which all work is done that later work of this stream waits for.
    /// Default and blocking streams wait for each other (CUDA runtime API, "Stream synchronization
    /// behavior").
    pub(crate) fn end(&self, driver: &Driver) -> Submission {
        match self.is_blocking() {
            true => self.submission(self.ring(driver).last()),
            false => self.last(),
        }
    }

    /// Returns the last submission of this stream.
    pub(crate) fn last(&self) -> Submission {
        self.submission(self.last.load(Ordering::Relaxed))
    }

    const fn submission(&self, number: Number) -> Submission {
        Submission {
            ring: self.ring,
            number,
        }
    }

    /// Returns whether the stream and the legacy default stream wait for each other.
    pub(crate) const fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets the priority that the stream tells, brought into the range. Its work keeps the priority
    /// of its ring, which the handle names.
    pub(crate) fn set_priority(&self, driver: &Driver, priority: i32) {
        let priority = driver.priorities.within(priority);
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// Returns whether the stream is being captured: its work then is to be noted by
    /// [`Self::submit`] or [`Self::note`].
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    /// Makes the stream part of a capture, or of none.
    pub(crate) fn set_membership(&self, membership: Option<Membership>) {
        let mut held = self.membership.lock();
        self.capturing
            .store(membership.is_some(), Ordering::Relaxed);
        *held = membership;
    }

    /// Refuses work of the legacy default stream while a stream is being captured that it would
    /// have to wait for. The capture ends as invalid.
    #[inline]
    pub(crate) fn check_implicit(&self, driver: &Driver) -> Answer {
        match self.is_default {
            true => driver.captures.check_implicit(self.context),
            false => Ok(()),
        }
    }

    /// Refuses what a stream cannot do while it is being captured. The capture ends as invalid.
    pub(crate) fn check_not_capturing(&self) -> Answer {
        match self.is_capturing() {
            false => Ok(()),
            true => {
                self.invalidate_capture();
                Err(Code::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Makes the capture fail of which the stream is part.
    pub(crate) fn invalidate_capture(&self) {
        if let Some(membership) = &*self.membership.lock() {
            membership.capture.invalidate();
        }
    }

    /// Returns the submission that has to be done before the stream is idle.
    fn last_to_wait_for(&self, driver: &Driver) -> Answer<Submission> {
        self.check_not_capturing()?;
        self.check_implicit(driver)?;
        driver.captures.check_unsafe()?;
        Ok(match self.is_default {
            true => self.submission(self.ring(driver).last()),
            false => self.last(),
        })
    }
}

fn create(into: Out<usize>, flags: u32, priority: i32) -> u32 {
    call_in_context(|driver, context| {
        if into.is_null() || flags & !NON_BLOCKING != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let priority = driver.priorities.within(priority);
        let ring = match flags {
            NON_BLOCKING => {
                let of_ring = driver.priorities.of_ring(priority);
                driver.rings.assign(driver, of_ring)
            }
            // Streams that wait for the default stream share its ring, whatever their priorities:
            // their order is that of the ring.
            _ => 0,
        };
        let handle = driver.fresh_handle() | usize::from(ring);
        let stream = Stream::new(context.handle, handle, flags, priority);
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
    call_with_current_stream(stream, |driver, _| {
        // Its work goes on, as CUDA documents.
        let removed = driver.streams.lock().table.remove(stream);
        let removed = removed.ok_or(Code::INVALID_HANDLE)?;
        driver
            .rings
            .forget_streams(|stream| stream.handle == removed.handle);
        crate::capture::end_of_stream(driver, &removed);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> u32 {
    call_with_stream(stream, |driver, context| {
        let stream = find(driver, context, stream)?;
        driver.rings.wait(driver, stream.last_to_wait_for(driver)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> u32 {
    call_with_stream(stream, |driver, context| {
        let stream = find(driver, context, stream)?;
        let last = stream.last_to_wait_for(driver)?;
        match driver.rings.is_done(driver, last)? {
            true => Ok(()),
            false => Err(Code::NOT_READY),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: usize, flags: Out<u32>) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        flags.set(find(driver, context, stream)?.flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: usize, priority: Out<i32>) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        priority.set(find(driver, context, stream)?.priority())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: usize, context: Out<usize>) -> u32 {
    call_with_current_stream(stream, |driver, current| {
        context.set(find(driver, current, stream)?.context)
    })
}

/// No stream is one of a green context.
#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx_v2(stream: usize, context: Out<usize>, green: Out<usize>) -> u32 {
    call_with_current_stream(stream, |driver, current| {
        context.set_if_wanted(find(driver, current, stream)?.context);
        green.set_if_wanted(0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetDevice(stream: usize, device: Out<i32>) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        find(driver, context, stream)?;
        device.set(driver.ordinal as i32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetId(stream: usize, id: Out<u64>) -> u32 {
    call_with_current_stream(stream, |driver, context| {
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
