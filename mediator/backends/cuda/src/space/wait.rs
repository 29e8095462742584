//! Waits for work of the back end's own, which queues of guests and the end of a session may hold
//! up.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::state::{STOP_PATIENCE, SpaceState};
use crate::driver::{CudaError, Event, WaitOutcome};

/// How long a wait goes on between two looks at whether the session has ended.
const LOOK: Duration = Duration::from_millis(10);

impl SpaceState {
    /// Waits until `event` happens. Queues are held up if that takes longer than `patience`.
    ///
    /// Returns false if the event may never happen: because the context is poisoned, or because the
    /// session has ended and work still goes on after [`STOP_PATIENCE`]. That work is abandoned.
    pub(crate) fn wait(&self, event: &Event, patience: Duration) -> Result<bool, CudaError> {
        let begun = Instant::now();
        let (mut stopped, mut closed): (Option<Instant>, _) = (None, None);
        loop {
            let look = if closed.is_none() { patience } else { LOOK };
            match event.wait(look.min(LOOK))? {
                WaitOutcome::Happened => return Ok(true),
                WaitOutcome::Poisoned => return Ok(false),
                WaitOutcome::TimedOut => {}
            }
            if closed.is_none() && begun.elapsed() >= patience {
                closed = Some(self.gpu.gate.close());
            }
            if self.stop.load(Ordering::SeqCst) {
                let stopped = *stopped.get_or_insert_with(Instant::now);
                if stopped.elapsed() > STOP_PATIENCE {
                    self.abandon();
                    return Ok(false);
                }
            }
        }
    }

    /// Notes that work is under way that does not end, so that nothing waits for it.
    pub(crate) fn abandon(&self) {
        self.maker.context.abandon();
        // Drops in the primary context would wait for the same GPU.
        self.gpu.home.abandon();
    }
}
