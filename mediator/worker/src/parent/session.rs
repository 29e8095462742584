//! A session in a worker process. It outlives the process.
//!
//! Lock order: `turn`, then `present`. Nothing is asked of a worker with `present` locked.

mod replacement;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_mediator::backend::{Attributes, Fault};
use causeway_mediator::{
    Activity, Client, GivesUp, GuestSession, InForce, LimitChange, LimitError, Mediator, OpenError,
    Quota, Rights, Session, SessionReport, Statistics, WorkerReport,
};
use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use parking_lot::{Mutex, MutexGuard};

use super::account::{Account, Monitored};
use super::partitions::Partition;
use super::shared::{Order, Shared};
use super::spare::Spare;
use super::stand_in::Absent;
use super::successor::Successor;
use super::worker::Worker;

/// The session of one guest, in a worker process of its own.
///
/// If the worker process ends before the session is closed, the session is lost. The guest can
/// still read the memory in its aperture until it resets the device; the reset starts a new worker
/// process.
pub struct WorkerSession {
    shared: Arc<Shared>,
    successor: Arc<Successor>,
    order: Order,
    attributes: Attributes,
    present: Mutex<Present>,
    /// Locked while the worker is replaced.
    turn: Mutex<()>,
    interrupted: AtomicBool,
    halted: AtomicBool,
    closing: AtomicBool,
    /// A leaf lock.
    monitored: Mutex<Monitored>,
}

impl fmt::Debug for WorkerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("WorkerSession");
        text.field("name", &self.order.name).finish_non_exhaustive()
    }
}

/// The worker of a session, or its stand-in.
struct Present {
    worker: Option<Arc<Worker>>,
    /// Answers the guest after the worker has ended, until the guest resets.
    stand_in: Option<Arc<Session>>,
    closed: bool,
    /// What the session's workers use of the GPU; `None` once it is closed.
    partition: Option<Partition>,
    /// Of a poisoned worker: the clients that have not reset since.
    waiting_clients: Option<u64>,
    /// Of earlier workers.
    account: Account,
}

impl WorkerSession {
    /// Opens a session in the worker `spare`, or in a new one if there is none or it fails.
    pub(super) fn open(
        (shared, successor): (Arc<Shared>, Arc<Successor>),
        mut order: Order,
        spare: Option<Spare>,
        gives_up: GivesUp<'_>,
    ) -> Result<Self, OpenError> {
        let begun = spare.map(|spare| begin(&shared, &mut order, spare, gives_up));
        let (worker, partition) = match begun.transpose()?.flatten() {
            Some(begun) => begun,
            None => {
                let partition = shared.partitions.hold();
                order.partition = partition.number();
                (Worker::start(&shared, &order, gives_up)?, partition)
            }
        };
        worker.lend(&order.membership);
        let attributes = worker.attributes.clone();
        let account = Account {
            total: SessionReport::of(order.session, &order.name),
            workers: WorkerReport::default(),
        };
        Ok(Self {
            shared,
            successor,
            attributes,
            present: Mutex::new(Present {
                worker: Some(worker),
                stand_in: None,
                closed: false,
                partition: Some(partition),
                waiting_clients: None,
                account,
            }),
            order,
            turn: Mutex::default(),
            interrupted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            monitored: Mutex::default(),
        })
    }

    /// Returns the process ID (PID) of the worker; `None` if the session is closed or its last
    /// worker could not be started.
    pub fn process_id(&self) -> Option<u32> {
        self.worker().map(|worker| worker.process.id())
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock()
    }

    fn worker(&self) -> Option<Arc<Worker>> {
        self.present().worker.clone()
    }

    /// Returns the worker, if there is one; `None` if the session is closed.
    fn worker_unless_closed(&self) -> Option<Option<Arc<Worker>>> {
        let present = self.present();
        (!present.closed).then(|| present.worker.clone())
    }

    /// Returns the session that answers while no worker does.
    fn stand_in(&self) -> Arc<Session> {
        let mut present = self.present();
        let fault = present.worker.as_ref().and_then(|worker| worker.fault());
        let fault = fault
            .unwrap_or_else(|| Fault::new(Status::DeviceLost, "the session has no worker process"));
        Arc::clone(present.stand_in.get_or_insert_with(|| self.lost(fault)))
    }

    /// Returns a session that is lost because of `fault`: it answers `hello` and `query_fault`, and
    /// refuses everything else.
    fn lost(&self, fault: Fault) -> Arc<Session> {
        let mediator = Mediator::new(Arc::new(Absent(self.attributes.clone())));
        let order = &self.order;
        let host = Arc::clone(&order.host);
        let quota = order.limits.quota();
        let session = mediator.open_as(order.session, host, quota, &order.name);
        session.lose(fault);
        session
    }

    /// Adds the reports of a worker and of its stand-in to the earlier ones. Returns the fault in
    /// the worker's report.
    fn settle(&self, worker: Option<&Worker>) -> Option<Fault> {
        let last = worker.and_then(|worker| worker.report(self.order.session).ok());
        let mut present = self.present();
        let stand_in = present.stand_in.take();
        let account = &mut present.account;
        let fault = account.add(worker, last, stand_in);
        account.drop_supplements();
        fault
    }

    /// Makes somebody watch how long work takes, if the session has a limit for that. Returns false
    /// if nobody does.
    fn heed_timeout(&self) -> bool {
        if self.order.limits.quota().work_ms == Quota::UNLIMITED {
            return true;
        }
        let heeded = self.shared.overdue.heed();
        if let Err(error) = &heeded {
            let name = &self.order.name;
            log::warn!("{name}: timeout= has no effect: cannot start a thread: {error}");
        }
        heeded.is_ok()
    }

    /// Adds what the VMM knows of the session, and its workers do not, or no longer.
    fn add_known(&self, statistics: &mut Statistics) {
        let limit = self.order.limits.quota().memory_bytes;
        statistics.memory_limit_bytes = limit.min(self.attributes.memory_bytes);
        let membership = &self.order.membership;
        let compute = membership.compute();
        statistics.weight = compute.weight.unwrap_or(0).into();
        statistics.share_percent = compute.share_percent.unwrap_or(0).into();
        // Back ends that execute work themselves know it better.
        if statistics.device_ns == 0 {
            statistics.device_ns = membership.used_ns();
        }
    }

    /// Records that `client` of a poisoned worker has reset. Returns true if no other client still
    /// owns objects in that worker.
    fn leave(&self, client: Client) -> bool {
        let mut present = self.present();
        let had = present.worker.as_ref().map_or(0, |worker| worker.owners());
        let left = present.waiting_clients.unwrap_or(had) & !client.bit();
        present.waiting_clients = Some(left);
        left == 0
    }

    /// Ends a poisoned worker while other clients still own something in it: for them the session
    /// is lost. Endless work stops only with its process.
    fn end_poisoned(&self, worker: &Worker) {
        if worker.fault().is_none() {
            let fault = self.settle(Some(worker));
            worker.lose(fault.unwrap_or_else(|| worker.fault_that("is poisoned by a fault")));
        }
    }
}

/// Opens the session of `order` in the worker `spare`, with the partition that this holds. Returns
/// `None` if the worker fails. Fails only if nobody waits for the session any more.
fn begin(
    shared: &Shared,
    order: &mut Order,
    spare: Spare,
    gives_up: GivesUp<'_>,
) -> Result<Option<(Arc<Worker>, Partition)>, OpenError> {
    let Spare { fresh, partition } = spare;
    order.partition = partition.number();
    match Worker::begin(shared, order, fresh, gives_up) {
        Ok(worker) => Ok(Some((worker, partition))),
        Err(error @ OpenError::GivenUp { .. }) => Err(error),
        Err(error) => {
            log::warn!("a spare worker failed, so a new worker starts: {error}");
            Ok(None)
        }
    }
}

impl GuestSession for WorkerSession {
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        if let Some(worker) = self.worker()
            && let Ok(taken) = worker.execute(client, batch)
        {
            return taken;
        }
        self.stand_in().execute(client, batch)
    }

    fn reset(&self) {
        let _turn = self.turn.lock();
        let Some(worker) = self.worker_unless_closed() else {
            return;
        };
        let fresh = worker.as_ref().is_some_and(|w| w.reset().unwrap_or(false));
        if !fresh {
            self.replace(worker);
        }
    }

    fn reset_client(&self, client: Client) {
        let _turn = self.turn.lock();
        let Some(worker) = self.worker_unless_closed() else {
            return;
        };
        let reset = |worker: &Arc<Worker>| worker.reset_client(client).unwrap_or(false);
        let done = worker.as_ref().is_some_and(reset);
        if done {
            return;
        }
        if self.leave(client) {
            self.replace(worker);
        } else if let Some(worker) = worker {
            self.end_poisoned(&worker);
        }
    }

    fn owners(&self) -> u64 {
        let present = self.present();
        match (present.waiting_clients, &present.worker) {
            _ if present.closed => 0,
            (Some(waiting_clients), _) => waiting_clients,
            (None, Some(worker)) => worker.owners(),
            (None, None) => 0,
        }
    }

    fn status_bits(&self) -> u32 {
        let present = self.present();
        match &present.worker {
            _ if present.closed => 0,
            Some(worker) => worker.status_bits(),
            None => status::LOST,
        }
    }

    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        if let Some(worker) = self.worker() {
            worker.interrupt();
        }
    }

    fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
        if let Some(worker) = self.worker() {
            worker.halt();
        }
    }

    fn close(&self) {
        // A start under way, for which a reset waits, is given up. What waits for its turn ends
        // while the worker does.
        if !self.closing.swap(true, Ordering::SeqCst) {
            self.successor.kill(&self.order);
        }
        let _turn = self.turn.lock();
        let worker = {
            let mut present = self.present();
            if std::mem::replace(&mut present.closed, true) {
                return;
            }
            present.worker.take()
        };
        self.settle(worker.as_deref());
        self.order.membership.close();
        if let Some(worker) = &worker {
            worker.close();
        }
        self.successor.forget(&self.order);
        let mut present = self.present();
        present.partition = None;
        let fault = Fault::new(Status::DeviceLost, "the session is closed");
        present.stand_in = Some(self.lost(fault));
    }

    fn id(&self) -> u64 {
        self.order.session
    }

    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn fault(&self) -> Option<Fault> {
        let worker = self.worker()?;
        if let Some(fault) = worker.fault() {
            return Some(fault);
        }
        match worker.report(self.order.session) {
            Ok((_, fault, _)) => fault,
            Err(_) => worker.fault(),
        }
    }

    fn report(&self) -> SessionReport {
        let (worker, stand_in, mut account) = {
            let present = self.present();
            let stand_in = present.stand_in.clone().filter(|_| !present.closed);
            (present.worker.clone(), stand_in, present.account.clone())
        };
        let worker = worker.as_deref();
        let last = worker.and_then(|worker| worker.report(self.order.session).ok());
        account.add(worker, last, stand_in);
        let mut statistics = account.total.statistics;
        self.add_known(&mut statistics);
        SessionReport {
            grants: self.order.grants.report(),
            worker: Some(account.workers),
            statistics,
            ..account.total
        }
    }

    fn limits(&self) -> Quota {
        Quota {
            compute: self.order.membership.compute(),
            ..self.order.limits.quota()
        }
    }

    fn check_limits(&self, change: &LimitChange) -> Result<(), LimitError> {
        change.check(self.attributes.memory_bytes, true)
    }

    fn set_limits(&self, change: &LimitChange) -> Result<InForce, LimitError> {
        self.check_limits(change)?;
        // Before the worker is asked: what the VMM gives out itself follows these, whatever the
        // worker does.
        self.order.limits.change(change);
        self.order
            .membership
            .change(|compute| change.compute(compute));
        let working = self.worker().filter(|worker| worker.fault().is_none());
        let tell = |worker: Arc<Worker>| {
            let is_lent = worker.lend(&self.order.membership);
            let is_watched = self.heed_timeout();
            worker.tell_limits() && is_lent && is_watched
        };
        Ok(match working.is_none_or(tell) {
            true => InForce::AtOnce,
            false => InForce::Later,
        })
    }

    fn activity(&self) -> Option<Activity> {
        let (worker, closed) = {
            let present = self.present();
            (present.worker.clone(), present.closed)
        };
        let working = worker.filter(|worker| worker.fault().is_none());
        let sample = working.as_ref().map(|worker| {
            // If it could not be told before.
            worker.lend(&self.order.membership);
            if !self.shared.overdue.has_thread() {
                let _ = self.shared.overdue.heed();
            }
            worker.sample()
        });
        let mut monitored = self.monitored.lock();
        let mut activity = match (working, sample) {
            (Some(worker), Some(sample)) => monitored.add(worker.number, sample?),
            _ => Activity {
                statistics: monitored.total().without_gauges(),
                lost: !closed,
            },
        };
        drop(monitored);
        self.add_known(&mut activity.statistics);
        Some(activity)
    }

    /// The VMM's own account: workers are not asked.
    fn rights(&self) -> Rights {
        let worker = self.worker().map(|worker| worker.number);
        worker.map_or_else(Rights::default, |number| {
            self.shared.broker.rights_between(number)
        })
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rig::{Guest, workers};

    #[test]
    fn time_of_the_device_that_a_back_end_has_counted_itself_is_kept() {
        let guest = Guest::open(&workers());
        let mut statistics = Statistics {
            device_ns: 7,
            ..Statistics::default()
        };
        guest.session.add_known(&mut statistics);
        assert_eq!(statistics.device_ns, 7, "it has had no lease");
    }
}
