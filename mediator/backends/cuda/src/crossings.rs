//! How much copies from one GPU to another have moved, and how long the GPU took for that.
//!
//! Each copy that is measured has an event before it and one behind it, which note when they
//! happen.

use std::collections::VecDeque;

use causeway_mediator::backend::{Crossed, Moved, Way};

use crate::driver::{CudaError, Event, Stream};

/// Most copies under way that are measured. What begins while there are as many does not count:
/// the driver takes about a thousand submissions.
const MEASURED_MAX: usize = 1024;

/// Smallest copy from or to memory of a peer that is measured. Two events take about a microsecond
/// of the queue's thread, which smaller copies would feel.
const DIRECT_BYTES_MIN: u64 = 1 << 20;

/// Returns whether a copy is measured.
pub(crate) fn is_measured(way: Way, bytes: u64) -> bool {
    match way {
        Way::Direct => bytes >= DIRECT_BYTES_MIN,
        Way::Staged => true,
    }
}

/// The copies from one GPU to another of one queue.
#[derive(Default)]
pub(crate) struct Crossings {
    /// Copies that the GPU has not been seen to end, the oldest first.
    under_way: VecDeque<Measured>,
    /// Events for further copies.
    spare: Vec<[Event; 2]>,
    crossed: Crossed,
}

struct Measured {
    events: [Event; 2],
    way: Way,
    bytes: u64,
}

impl Crossings {
    /// Calls `copy`, which puts a copy of `bytes` bytes into `stream`, and measures it.
    pub(crate) fn measure(
        &mut self,
        stream: &Stream,
        (way, bytes): (Way, u64),
        copy: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        self.look()?;
        if self.under_way.len() >= MEASURED_MAX {
            return copy();
        }
        let events = match self.spare.pop() {
            Some(events) => events,
            None => [
                Event::timed(stream.context())?,
                Event::timed(stream.context())?,
            ],
        };
        stream.record(&events[0])?;
        copy()?;
        stream.record(&events[1])?;
        self.under_way.push_back(Measured { events, way, bytes });
        Ok(())
    }

    /// Counts the copies that the GPU has done.
    pub(crate) fn look(&mut self) -> Result<(), CudaError> {
        while let Some(Measured { events, .. }) = self.under_way.front() {
            if !events[1].has_happened()? {
                break;
            }
            let ns = events[1].ns_since(&events[0])?;
            if let Some(Measured { events, way, bytes }) = self.under_way.pop_front() {
                self.crossed.add(way, Moved { bytes, ns });
                self.spare.push(events);
            }
        }
        Ok(())
    }

    /// Returns what was counted since the last call.
    pub(crate) fn take(&mut self) -> Crossed {
        std::mem::take(&mut self.crossed)
    }
}
