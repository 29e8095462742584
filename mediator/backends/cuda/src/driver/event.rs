//! Events: places in a stream, of which the driver tells whether the GPU has reached them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent;

use super::{Context, CudaError, Driver};

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
pub(crate) struct Event {
    context: Arc<Context>,
    pub(super) raw: CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Returns an event that has happened.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: stores an event, which `drop` destroys.
        unsafe { driver.event_create(&mut raw, NO_TIMING) }?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    /// Returns whether the GPU has done all work before the place at which the event was recorded.
    pub(crate) fn has_happened(&self) -> Result<bool, CudaError> {
        let driver = self.context.enter()?;
        // SAFETY: the event is live.
        let result = unsafe { (driver.table()?.event_query)(self.raw) };
        driver.is_done("cuEventQuery", result)
    }

    /// Waits until the event happens, but no longer than `patience`. The driver's own wait would go
    /// on for ever behind a kernel that does not end.
    pub(crate) fn wait(&self, patience: Duration) -> Result<WaitOutcome, CudaError> {
        let begun = Instant::now();
        while !self.has_happened()? {
            if self.context.is_poisoned() {
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

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: an event that has not happened yet is destroyed when it has (cuEventDestroy).
        let destroy = |driver: &Driver| unsafe { driver.event_destroy(self.raw) };
        self.context.release("an event", destroy);
    }
}
