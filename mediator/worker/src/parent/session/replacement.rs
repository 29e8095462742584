//! A session's next worker, in place of one that is lost or poisoned.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use causeway_mediator::OpenError;
use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;

use super::WorkerSession;
use crate::parent::spare::Fresh;
use crate::parent::worker::Worker;

impl WorkerSession {
    /// Starts another worker in place of one that is lost or poisoned.
    pub(super) fn replace(&self, old: Option<Arc<Worker>>) {
        self.settle(old.as_deref());
        let begun = Instant::now();
        // Starts while the old one ends.
        let next = self.successor.take(&self.shared, &self.order);
        if let Some(old) = &old {
            old.end("was replaced");
        }
        let ended = begun.elapsed();
        let started = self.begin_next(next);
        let all = begun.elapsed();
        log::debug!(
            "{}: a worker took {} ms to end, and the next one {} ms more to begin",
            self.order.name,
            ended.as_millis(),
            (all - ended).as_millis()
        );
        let mut present = self.present();
        present.waiting_clients = None;
        let account = &mut present.account;
        account.workers.restarts += 1;
        account.total.fault = None;
        account.total.statistics = account.total.statistics.without_gauges();
        match started {
            Ok(worker) => {
                present.stand_in = None;
                present.worker = Some(worker);
            }
            Err(error) => {
                let level = match error {
                    OpenError::GivenUp { .. } => log::Level::Debug,
                    _ => log::Level::Error,
                };
                log::log!(level, "{}: {error}", self.order.name);
                let fault = Fault::new(Status::DeviceLost, error.to_string());
                present.worker = None;
                present.stand_in = Some(self.lost(fault));
            }
        }
        let worker = present.worker.clone();
        drop(present);
        // A halt or an interrupt of the old worker holds for the new one, too, and so do limits
        // that were changed after it had been told its first ones.
        if let Some(worker) = worker {
            worker.lend(&self.order.membership);
            if worker.first_limits != self.order.limits.quota() {
                worker.tell_limits();
            }
            if self.halted.load(Ordering::SeqCst) {
                worker.halt();
            } else if self.interrupted.load(Ordering::SeqCst) {
                worker.interrupt();
            }
        }
    }

    /// Opens the session in the process `next`, or in a new one if that fails: it may have wanted
    /// memory that the last one had.
    fn begin_next(&self, next: io::Result<Fresh>) -> Result<Arc<Worker>, OpenError> {
        let (shared, order) = (&*self.shared, &self.order);
        let ends = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        let mut gives_up = || ends(&self.halted) || ends(&self.closing);
        let begun = Instant::now();
        let first = next
            .map_err(|e| order.failed(e))
            .and_then(|fresh| Worker::begin(shared, order, fresh, &mut gives_up));
        let started = match first {
            Err(error) if !matches!(error, OpenError::GivenUp { .. }) => {
                log::debug!("{}: {error}; a new process starts", order.name);
                Worker::start(shared, order, &mut gives_up)
            }
            first => first,
        };
        if started.is_ok() {
            self.successor.prepare(shared, order, begun.elapsed());
        }
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rig::{Guest, workers};

    #[test]
    fn a_new_process_is_started_if_the_next_one_fails() {
        let guest = Guest::open(&workers());
        let next = Err(io::Error::other("the next one fails"));
        assert!(guest.session.begin_next(next).is_ok());
    }
}
