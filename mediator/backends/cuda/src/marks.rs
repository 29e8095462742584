//! The end of each piece of work, for somebody who watches how long work takes.
//!
//! A mark is an event behind each submission but fences. The thread of the queue looks at the marks
//! whenever it is in the queue, also while it waits there. Few enough submissions are under way that
//! it never waits in the driver for room instead, where it would see nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_mediator::backend::Pulse;

use crate::driver::{CudaError, Event, Stream};

/// Most marks under way. The driver takes about a thousand submissions.
const MARKS_MAX: usize = 256;

/// Marks in the stream of one queue.
#[derive(Default)]
pub(crate) struct Marks {
    pulse: Arc<Pulse>,
    /// Marks that the GPU has not been seen to reach, the oldest first.
    marks: VecDeque<Event>,
    /// Events for further marks.
    spare: Vec<Event>,
    /// Whether there may be work under way that was not marked, because nobody watched.
    is_unmarked: bool,
}

impl Marks {
    /// Sets whom marks tell that they were put and reached.
    pub(crate) fn set_pulse(&mut self, pulse: &Arc<Pulse>) {
        self.pulse = Arc::clone(pulse);
    }

    /// Returns whether somebody watches.
    pub(crate) fn are_wanted(&self) -> bool {
        self.pulse.is_wanted()
    }

    /// Notes that a submission is not marked, because nobody watches.
    pub(crate) fn skip(&mut self) {
        self.is_unmarked = true;
    }

    /// Returns whether there are as many marks as there may be.
    pub(crate) fn are_full(&self) -> bool {
        self.marks.len() >= MARKS_MAX
    }

    /// Puts a mark behind everything that `stream` has so far.
    pub(crate) fn put(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(stream.context())?,
        };
        stream.record(&event)?;
        self.marks.push_back(event);
        self.is_unmarked = false;
        self.pulse.begin();
        Ok(())
    }

    /// Notes which marks of `stream` the GPU has reached. If somebody watches since a short time, all
    /// that was not marked before has one mark.
    pub(crate) fn look(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if self.is_unmarked && self.are_wanted() {
            self.put(stream)?;
        }
        while let Some(first) = self.marks.front() {
            if !first.has_happened()? {
                break;
            }
            self.spare.extend(self.marks.pop_front());
            self.pulse.end(1);
        }
        Ok(())
    }

    /// Notes that the GPU has no work.
    pub(crate) fn idle(&mut self) {
        self.is_unmarked = false;
        if !self.marks.is_empty() {
            self.pulse.end(self.marks.len() as u64);
            self.spare.extend(self.marks.drain(..));
        }
    }
}
