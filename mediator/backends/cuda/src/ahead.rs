//! How far a queue is ahead of the GPU, while other sessions wait for the GPU.
//!
//! A mark is an event behind a batch of submissions. Two batches are under way at most: while the
//! GPU executes one, the other waits for it. A batch is one submission at first; while batches take
//! less than [`BATCH`], it becomes larger, because each mark costs about as much as a launch.
//!
//! While a session in a hurry comes again and again, the second batch of two is not submitted
//! before the first one is expected to end soon. Who wants the GPU then finds one kernel before its
//! own, and seldom two. That is no rule for all, because an H200 breaks off a kernel when another
//! context has work, unless the context of the kernel was given work a short time before. This
//! costs 0.3 ms of the GPU each time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::driver::{CudaError, Event, Stream};

/// How long the GPU is to take for a batch.
const BATCH: Duration = Duration::from_micros(250);
/// How long before the expected end of one batch the next one may be submitted. A thread that
/// sleeps for that is late by up to 100 µs, and so is what it has seen of the batch before.
const LEAD: Duration = Duration::from_micros(250);
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
    /// When the GPU began the batch of the first mark, and whether it was seen to: behind others'
    /// work, it begins later than it could.
    begun: Option<Instant>,
    is_begin_seen: bool,
    /// How long the GPU took for the last batch whose begin was seen.
    took: Duration,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            marks: VecDeque::new(),
            spare: Vec::new(),
            batch: 1,
            submitted: 0,
            begun: None,
            is_begin_seen: false,
            took: Duration::ZERO,
        }
    }
}

impl Ahead {
    /// Counts a submission.
    pub(crate) fn count(&mut self) {
        self.submitted = self.submitted.saturating_add(1);
    }

    /// Returns whether the present batch has all its submissions, so that a mark is to follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.submitted >= self.batch
    }

    /// Puts a mark behind everything that `stream` has so far.
    pub(crate) fn mark(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(stream.context())?,
        };
        stream.record(&event)?;
        self.submitted = 0;
        if self.marks.is_empty() {
            (self.begun, self.is_begin_seen) = (Some(Instant::now()), false);
        }
        self.marks.push_back(event);
        Ok(())
    }

    /// Returns whether more batches are under way than may be, or, if somebody `is_hurried`,
    /// whether the only one still takes a while.
    pub(crate) fn is_far(&mut self, is_hurried: bool) -> Result<bool, CudaError> {
        self.take_reached()?;
        let elapsed = || self.begun.map_or(Duration::MAX, |begun| begun.elapsed());
        Ok(match self.marks.len() {
            0 => false,
            1 => is_hurried && is_early(self.took, elapsed()),
            _ => true,
        })
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

    fn learn(&mut self) {
        let now = Instant::now();
        if let Some(begun) = self.begun.replace(now) {
            self.learn_from(now - begun);
        }
        self.is_begin_seen = true;
    }

    /// Learns from the time that the GPU took for a batch how large the next ones are to be. If its
    /// begin was not seen, the batch took no longer than that. So after a long batch, short ones
    /// are not waited for as if they were long, which would go on for ever: their begins are seen
    /// only if the next one is submitted in time.
    fn learn_from(&mut self, took: Duration) {
        if self.is_begin_seen {
            self.took = took;
            self.batch = next_batch(self.batch, took);
        } else {
            self.took = self.took.min(took);
        }
    }
}

/// Returns whether it is too early for a second batch, `elapsed` after the GPU began the first, if
/// that takes as long as the one before, which took `took`.
fn is_early(took: Duration, elapsed: Duration) -> bool {
    elapsed.saturating_add(LEAD) < took
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

    #[test]
    fn short_batches_behind_a_long_one_are_learned_from() {
        let us = Duration::from_micros;
        let mut ahead = Ahead {
            is_begin_seen: true,
            ..Ahead::default()
        };
        ahead.learn_from(us(20_000));
        assert!(is_early(ahead.took, us(300)));
        ahead.is_begin_seen = false;
        ahead.learn_from(us(300));
        assert!(!is_early(ahead.took, us(100)));
        // A begin that was not seen says nothing of longer ones.
        ahead.learn_from(us(5_000));
        assert_eq!(ahead.took, us(300));
    }

    #[test]
    fn a_second_batch_waits_for_the_end_of_a_long_one() {
        let us = Duration::from_micros;
        assert!(is_early(us(1_100), us(0)));
        assert!(is_early(us(1_100), us(849)));
        assert!(!is_early(us(1_100), us(850)));
        // Nothing is known of the first batch, or it was a short one.
        assert!(!is_early(us(0), us(0)));
        assert!(!is_early(us(250), us(0)));
    }
}
