//! Events: places in a stream, of which the driver tells whether the GPU has reached them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent_st;

use super::{Context, CudaError, Owned};

/// `CU_EVENT_DISABLE_TIMING`: such events cost least.
const NO_TIMING: u32 = 2;

/// How long a wait spins before it sleeps, and how long it sleeps at a time.
const SPIN: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_micros(100);

/// How a wait for an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The event has happened.
    Happened,
    /// The context is poisoned: the event never happens.
    Poisoned,
    /// The event has not happened within the time given.
    TimedOut,
}

/// A CUDA event: happens when the GPU has done all work before the place in a stream at which the
/// event was recorded.
pub(crate) struct Event(pub(super) Owned<CUevent_st>);

// SAFETY: several threads may use an event at once.
unsafe impl Sync for Event {}

impl Event {
    /// Returns an event that has happened.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        Self::with(context, NO_TIMING)
    }

    /// Returns an event that has happened, and that notes when it does.
    pub(crate) fn timed(context: &Arc<Context>) -> Result<Self, CudaError> {
        Self::with(context, 0)
    }

    fn with(context: &Arc<Context>, flags: u32) -> Result<Self, CudaError> {
        // SAFETY: stores a new event.
        let created =
            unsafe { Owned::create(context, |driver, raw| driver.event_create(raw, flags)) };
        created.map(Self)
    }

    /// Returns how long after `begin` this event has happened, in nanoseconds. Both were recorded,
    /// have happened, and note when.
    pub(crate) fn ns_since(&self, begin: &Self) -> Result<u64, CudaError> {
        let driver = self.0.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are live; stores a number.
        unsafe { driver.event_elapsed_time(&mut milliseconds, begin.0.raw, self.0.raw) }?;
        Ok((f64::from(milliseconds.max(0.0)) * 1e6) as u64)
    }

    /// Returns whether the GPU has done all work before the place at which the event was recorded.
    pub(crate) fn has_happened(&self) -> Result<bool, CudaError> {
        let driver = self.0.context.enter()?;
        // SAFETY: the event is live.
        let result = unsafe { (driver.table()?.event_query)(self.0.raw) };
        driver.is_done("cuEventQuery", result)
    }

    /// Waits until the event happens, but no longer than `patience`. The driver's own wait would go
    /// on for ever behind a kernel that does not end.
    pub(crate) fn wait(&self, patience: Duration) -> Result<WaitOutcome, CudaError> {
        let begun = Instant::now();
        while !self.has_happened()? {
            if self.0.context.is_poisoned() {
                return Ok(WaitOutcome::Poisoned);
            }
            match begun.elapsed() {
                elapsed if elapsed >= patience => return Ok(WaitOutcome::TimedOut),
                elapsed if elapsed < SPIN => std::hint::spin_loop(),
                _ => std::thread::sleep(SLEEP),
            }
        }
        Ok(WaitOutcome::Happened)
    }
}
