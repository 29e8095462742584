//! The end of each piece of work, for somebody who watches how long work takes.
//!
//! A mark is an event behind each submission. The thread of the queue looks at the marks whenever it
//! is in the queue, also while it waits there. Few enough submissions are under way that it never
//! waits in the driver for room instead, where it would see nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_mediator::backend::Pulse;

use crate::driver::{CudaError, Event, Stream};

/// Most submissions under way while somebody watches. The driver takes about a thousand.
const MARKS_MAX: usize = 256;

/// Marks in the stream of one queue.
#[derive(Default)]
pub(crate) struct Marks {
    pulse: Arc<Pulse>,
    /// Marks that the GPU has not been seen to reach, the oldest first.
    marks: VecDeque<Event>,
    /// Events for further marks.
    spare: Vec<Event>,
}

impl Marks {
    /// Makes marks that are reached beat `pulse`.
    pub(crate) fn set_pulse(&mut self, pulse: &Arc<Pulse>) {
        self.pulse = Arc::clone(pulse);
    }

    /// Returns whether somebody watches.
    pub(crate) fn are_wanted(&self) -> bool {
        self.pulse.is_wanted()
    }

    /// Puts a mark behind everything that `stream` has so far.
    pub(crate) fn put(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(stream.context())?,
        };
        stream.record(&event)?;
        self.marks.push_back(event);
        Ok(())
    }

    /// Notes which marks the GPU has reached. Returns whether as many are left as there may be.
    pub(crate) fn look(&mut self) -> Result<bool, CudaError> {
        while let Some(first) = self.marks.front() {
            if !first.has_happened()? {
                break;
            }
            self.spare.extend(self.marks.pop_front());
            self.pulse.beat();
        }
        Ok(self.marks.len() >= MARKS_MAX)
    }

    /// Notes that the GPU has no work.
    pub(crate) fn idle(&mut self) {
        if !self.marks.is_empty() {
            self.spare.extend(self.marks.drain(..));
            self.pulse.beat();
        }
    }
}
