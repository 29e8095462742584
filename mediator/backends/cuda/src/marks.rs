//! The end of each piece of work, for somebody who watches how long work takes.
//!
//! A mark is an event behind each submission but fences. The thread of the queue looks at the marks
//! whenever it is in the queue, also while it waits there. It keeps so few submissions under way
//! that it never waits in the driver for room, where it would see nothing. For that, some fences
//! have a mark, too, which tells nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_mediator::backend::Pulse;

use crate::driver::{CudaError, Event, Stream};

/// Most marks under way, and most fences in front of each. The driver takes about a thousand
/// submissions.
const MARKS_MAX: usize = 128;
const FENCES_MAX: u32 = 4;

/// Marks in the stream of one queue.
#[derive(Default)]
pub(crate) struct Marks {
    pulse: Arc<Pulse>,
    /// Marks that the GPU has not been seen to reach, the oldest first.
    marks: VecDeque<Mark>,
    /// Events for further marks.
    spare: Vec<Event>,
    /// Whether there may be work under way, beside fences, that has no mark yet.
    is_unmarked: bool,
    /// Fences since the last mark.
    fences: u32,
}

struct Mark {
    event: Event,
    /// Whether it stands for a piece of work.
    is_piece: bool,
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

    /// Notes a submission, of which the driver may have a part even if it has refused it. The next
    /// look puts the mark behind it.
    pub(crate) fn submitted(&mut self, is_fence: bool) {
        match is_fence {
            true => self.fences = (self.fences + 1).min(FENCES_MAX),
            false => self.is_unmarked = true,
        }
    }

    /// Returns whether there are as many marks as there may be.
    pub(crate) fn are_full(&self) -> bool {
        self.marks.len() >= MARKS_MAX
    }

    /// Puts a mark behind what `stream` has so far, if it lacks one and somebody watches: also
    /// behind what was submitted before anybody did. Notes which marks the GPU has reached.
    pub(crate) fn look(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if (self.is_unmarked || self.fences >= FENCES_MAX) && self.are_wanted() {
            // If the driver has no event left, the next look tries again.
            let _ = self.put(stream);
        }
        while let Some(first) = self.marks.front() {
            if !first.event.has_happened()? {
                break;
            }
            self.take_first();
        }
        Ok(())
    }

    fn put(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(stream.context())?,
        };
        stream.record(&event)?;
        let is_piece = std::mem::take(&mut self.is_unmarked);
        self.marks.push_back(Mark { event, is_piece });
        self.fences = 0;
        if is_piece {
            self.pulse.begin();
        }
        Ok(())
    }

    fn take_first(&mut self) {
        let Some(Mark { event, is_piece }) = self.marks.pop_front() else {
            return;
        };
        self.spare.push(event);
        if is_piece {
            self.pulse.end();
        }
    }

    /// Notes that the GPU has no work.
    pub(crate) fn idle(&mut self) {
        (self.is_unmarked, self.fences) = (false, 0);
        while !self.marks.is_empty() {
            self.take_first();
        }
    }
}
