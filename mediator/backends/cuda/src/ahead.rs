//! How far a queue is ahead of the GPU, while other sessions wait for the GPU.
//!
//! A mark is an event behind a batch of submissions. Two batches are under way: while the GPU
//! executes one, the other waits for it. A batch is one submission at first; while batches take
//! less than [`BATCH`], it becomes larger, because each mark costs about as much as a launch.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::driver::{CudaError, Event, Stream};

/// Batches under way when the next one may be submitted.
const BATCHES: usize = 1;
/// How long the GPU is to take for a batch.
const BATCH: Duration = Duration::from_micros(250);
/// Most submissions in a batch.
const SUBMISSIONS_MAX: u32 = 64;

/// Marks in the stream of one queue.
pub(crate) struct Ahead {
    /// Marks that the GPU has not been seen to reach, the oldest first.
    marks: VecDeque<Event>,
    /// Events for further marks.
    spare: Vec<Event>,
    /// Submissions in a batch, and in the present one so far.
    batch: u32,
    submitted: u32,
    /// When the GPU was last seen to reach a mark, or had not begun anything.
    reached: Option<Instant>,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            marks: VecDeque::new(),
            spare: Vec::new(),
            batch: 1,
            submitted: 0,
            reached: None,
        }
    }
}

impl Ahead {
    /// Counts a submission. Returns whether it is the last of a batch.
    pub(crate) fn count(&mut self) -> bool {
        self.submitted += 1;
        self.submitted >= self.batch
    }

    /// Puts a mark behind everything that `stream` has so far.
    pub(crate) fn mark(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.submitted = 0;
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(stream.context())?,
        };
        stream.record(&event)?;
        if self.marks.is_empty() {
            self.reached = Some(Instant::now());
        }
        self.marks.push_back(event);
        Ok(())
    }

    /// Returns whether more batches are under way than may be.
    pub(crate) fn is_far(&mut self) -> Result<bool, CudaError> {
        self.take_reached()?;
        Ok(self.marks.len() > BATCHES)
    }

    /// Returns whether there are marks that the GPU has not been seen to reach.
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Returns whether at most one batch is under way.
    pub(crate) fn is_near_end(&mut self) -> Result<bool, CudaError> {
        self.take_reached()?;
        let unmarked = usize::from(self.submitted != 0);
        Ok(self.marks.len() + unmarked <= 1)
    }

    fn take_reached(&mut self) -> Result<(), CudaError> {
        while let Some(first) = self.marks.front() {
            if !first.has_happened()? {
                break;
            }
            self.learn();
            self.spare.extend(self.marks.pop_front());
        }
        Ok(())
    }

    /// Notes that the GPU has no work.
    pub(crate) fn idle(&mut self) {
        self.spare.extend(self.marks.drain(..));
        self.submitted = 0;
    }

    /// Learns from the time that the GPU took for a batch how large the next ones are to be.
    fn learn(&mut self) {
        let now = Instant::now();
        let took = self
            .reached
            .replace(now)
            .map_or(BATCH, |before| now - before);
        self.batch = next_batch(self.batch, took);
    }
}

/// Returns how many submissions a batch is to have after one of `batch` has taken `took`: at most
/// twice as many, but as few at once as the time says.
fn next_batch(batch: u32, took: Duration) -> u32 {
    let fits = BATCH.as_nanos() * u128::from(batch) / took.as_nanos().max(1);
    let fits = u32::try_from(fits).unwrap_or(u32::MAX);
    fits.clamp(1, (2 * batch).min(SUBMISSIONS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_slowly_and_shrink_at_once() {
        let us = Duration::from_micros;
        assert_eq!(next_batch(1, us(2)), 2);
        assert_eq!(next_batch(2, us(4)), 4);
        assert_eq!(next_batch(64, us(128)), 64);
        assert_eq!(next_batch(64, us(64_000)), 1);
        assert_eq!(next_batch(8, us(500)), 4);
        assert_eq!(next_batch(1, us(5_000)), 1);
        assert_eq!(next_batch(1, Duration::ZERO), 2);
    }
}
