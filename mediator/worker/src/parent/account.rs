//! What the workers of one session have reported and done, all together.

use std::sync::Arc;

use causeway_mediator::backend::Fault;
use causeway_mediator::{Activity, GuestSession, Session, SessionReport, Statistics, WorkerReport};

use super::worker::Worker;
use crate::report::ReceivedReport;

/// Maximum number of supplements that are kept of earlier workers.
const SUPPLEMENTS_MAX: usize = 64;

/// What the workers of a session have reported, all together.
#[derive(Clone)]
pub(super) struct Account {
    pub total: SessionReport,
    pub workers: WorkerReport,
}

impl Account {
    /// Adds what a worker, whose last report is `last`, and its stand-in have to say. Returns the
    /// fault in the worker's report.
    pub fn add(
        &mut self,
        worker: Option<&Worker>,
        last: Option<ReceivedReport>,
        stand_in: Option<Arc<Session>>,
    ) -> Option<Fault> {
        let mut fault = None;
        if let Some((last, reported_fault, supplement)) = last {
            fault = reported_fault;
            self.total = last.after(&self.total);
            self.workers.supplements.push(supplement);
        }
        if let Some(stand_in) = stand_in {
            self.total = stand_in.report().after(&self.total);
        }
        if let Some(fault) = worker.and_then(|worker| worker.fault()) {
            self.total.fault = Some(fault.to_string());
        }
        if let Some(rss_bytes) = worker.and_then(|worker| worker.process.rss_bytes()) {
            self.workers.rss_bytes = rss_bytes;
        }
        fault
    }

    /// Drops supplements beyond a limit: a guest may use any number of workers, and each may add
    /// 56 KiB.
    pub fn drop_supplements(&mut self) {
        self.workers.supplements.truncate(SUPPLEMENTS_MAX);
    }
}

/// What monitors were last of the workers of one session: counts do not go back when one worker
/// takes over from another.
#[derive(Debug, Default)]
pub(super) struct Monitored {
    /// Of earlier workers, as of their last samples.
    earlier: Statistics,
    /// Number and last sample of the present worker.
    present: Option<(u64, Statistics)>,
}

impl Monitored {
    /// Adds a sample of `worker`. Returns the activity of all workers together.
    pub fn add(&mut self, worker: u64, sample: Activity) -> Activity {
        if self.present.is_some_and(|(present, _)| present != worker) {
            self.earlier = self.total();
        }
        self.present = Some((worker, sample.statistics));
        Activity {
            statistics: self.total(),
            ..sample
        }
    }

    /// Returns the statistics of all workers together, as of their last samples.
    pub fn total(&self) -> Statistics {
        let (_, last) = self.present.unwrap_or_default();
        last.after(&self.earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_uses_up_many_workers_adds_no_more_to_the_report() {
        let mut account = Account {
            total: SessionReport::of(1, "test"),
            workers: WorkerReport::default(),
        };
        account.workers.supplements = vec![Vec::new(); SUPPLEMENTS_MAX + 1];
        account.drop_supplements();
        assert_eq!(account.workers.supplements.len(), SUPPLEMENTS_MAX);
    }

    #[test]
    fn counts_of_each_worker_are_added_once() {
        let mut monitored = Monitored::default();
        let mut add = |worker, packets| {
            let sample = Activity {
                statistics: Statistics {
                    packets,
                    ..Statistics::default()
                },
                lost: false,
            };
            monitored.add(worker, sample).statistics.packets
        };
        assert_eq!(add(1, 5), 5);
        assert_eq!(add(1, 7), 7);
        assert_eq!(add(2, 1), 8);
        assert_eq!(add(2, 2), 9);
        assert_eq!(monitored.total().packets, 9);
    }
}
