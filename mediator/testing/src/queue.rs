//! Queues of the fake back end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::{Fault, Progress, Queue, Usage, Work};

use crate::behind::Backlog;
use crate::failures::Failures;
use crate::live::Alive;

/// A queue.
pub(crate) struct FakeQueue {
    pub backlog: Arc<Backlog>,
    pub failures: Arc<Failures>,
    /// What each piece of work takes of the device.
    pub piece_ns: Arc<AtomicU64>,
    pub usage: Usage,
    pub _alive: Alive,
}

impl Queue for FakeQueue {
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault> {
        if let Some(status) = self.failures.status("submit") {
            return Err(Fault::new(status, "the test wants it"));
        }
        self.usage += Usage::of_one_unit(self.piece_ns.load(Ordering::Relaxed));
        self.backlog.submit(&work)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Progress, Fault> {
        self.backlog.progress()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.backlog.finish()
    }

    fn close(&mut self) -> bool {
        !self.backlog.is_endless()
    }

    fn has_room(&mut self, is_hurried: bool) -> Result<bool, Fault> {
        Ok(self.backlog.has_room(is_hurried))
    }

    fn is_near_end(&mut self) -> Result<bool, Fault> {
        Ok(self.backlog.is_near_end())
    }

    fn runs_behind(&self) -> bool {
        self.backlog.runs_behind()
    }

    fn take_usage(&mut self) -> Usage {
        std::mem::take(&mut self.usage)
    }
}
