//! The streams of an address space's queues, for what has to wait until the GPU has done all of
//! their work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::state::STOP_PATIENCE;
use crate::driver::{Context, CudaError, Event, Stream, WaitOutcome};
use crate::gpu::Gpu;

/// How long a wait goes on between two looks at whether the session has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Streams of queues, and what ends a wait for them.
pub(crate) struct Streams {
    gpu: Arc<Gpu>,
    context: Arc<Context>,
    /// Set when the session ends.
    stop: Arc<AtomicBool>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

impl Streams {
    /// Returns an empty list for an address space that works in `context`.
    pub(crate) fn new(gpu: &Arc<Gpu>, context: &Arc<Context>, stop: &Arc<AtomicBool>) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            context: Arc::clone(context),
            stop: Arc::clone(stop),
            streams: Mutex::default(),
        }
    }

    /// Adds the stream of a queue, until the queue ends.
    pub(crate) fn add(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() != 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Waits until the GPU has done all work that the streams have now. Returns early if that never
    /// happens, as [`Self::wait`] does.
    pub(crate) fn settle(&self) {
        let streams = self.streams.lock().clone();
        let events = streams.iter().filter_map(Weak::upgrade).map(|stream| {
            let event = Event::new(&self.context)?;
            stream.record(&event).map(|()| event)
        });
        // Recorded before the first is waited for.
        let events: Vec<Result<Event, CudaError>> = events.collect();
        for event in events {
            let waited = event.and_then(|event| self.wait(&event, Duration::MAX));
            if let Err(e) = waited {
                log::debug!("cannot wait for the work of an address space: {e}");
            }
        }
    }

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
        self.context.abandon();
        // Drops in the primary context would wait for the same GPU.
        self.gpu.home.abandon();
    }
}
