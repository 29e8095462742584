//! A session that lives in a worker process, and survives it.
//!
//! Lock order: `turn`, then `present`. Nothing is asked of a worker with `present` locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_mediator::backend::{Attributes, Fault};
use causeway_mediator::{
    Activity, Client, GuestSession, OpenError, Session, SessionReport, Statistics, WorkerReport,
};
use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use parking_lot::{Mutex, MutexGuard};

use super::lost;
use super::worker::{Order, Worker};
use super::workers::Shared;

/// Most supplements of earlier workers that are kept.
const SUPPLEMENTS_MAX: usize = 64;

/// The session of one guest, in a worker process of its own.
///
/// When the worker ends, the guest has lost its device; what was placed in the aperture stays readable until the guest
/// resets, and then a new worker takes over.
pub struct WorkerSession {
    shared: Arc<Shared>,
    order: Order,
    attributes: Attributes,
    present: Mutex<Present>,
    /// Held by who replaces the worker.
    turn: Mutex<()>,
    interrupted: AtomicBool,
    halted: AtomicBool,
    /// A leaf lock.
    monitored: Mutex<Monitored>,
}

/// Who stands for the session.
struct Present {
    worker: Option<Arc<Worker>>,
    /// What answers the guest once the worker is gone, until it resets.
    lost: Option<Arc<Session>>,
    closed: bool,
    /// Once the worker can serve no more: the clients that have not given up yet what they had in it.
    bereft: Option<u64>,
    /// What earlier workers have counted, and their supplements.
    earlier: SessionReport,
    account: WorkerReport,
}

impl WorkerSession {
    pub(super) fn open(shared: Arc<Shared>, order: Order) -> Result<Self, OpenError> {
        let worker = Worker::start(&shared, &order)?;
        let attributes = worker.attributes().clone();
        let earlier = SessionReport::of(order.session, &order.name);
        Ok(Self {
            shared,
            attributes,
            present: Mutex::new(Present {
                worker: Some(worker),
                lost: None,
                closed: false,
                bereft: None,
                earlier,
                account: WorkerReport::default(),
            }),
            order,
            turn: Mutex::default(),
            interrupted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            monitored: Mutex::default(),
        })
    }

    /// The number of the worker process, while there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.worker().map(|worker| worker.process_id())
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock()
    }

    fn worker(&self) -> Option<Arc<Worker>> {
        self.present().worker.clone()
    }

    /// What answers the guest while there is no worker that can.
    fn stand_in(&self) -> Arc<Session> {
        let mut present = self.present();
        let fault = present.worker.as_ref().and_then(|worker| worker.fault());
        let fault = fault.unwrap_or_else(|| Fault {
            status: Status::DeviceLost,
            text: "there is no worker process".to_owned(),
        });
        let lost = present.lost.get_or_insert_with(|| self.lost(fault));
        Arc::clone(lost)
    }

    fn lost(&self, fault: Fault) -> Arc<Session> {
        lost::session(
            self.order.session,
            self.attributes.clone(),
            Arc::clone(&self.order.host),
            self.order.quota,
            &self.order.name,
            fault,
        )
    }

    /// Takes what a worker and its stand-in have counted into account. Gives what the worker says that it was lost to.
    fn settle(&self, worker: Option<&Worker>) -> Option<Fault> {
        let told = worker.and_then(|worker| worker.report(self.order.session).ok());
        let rss_bytes = worker.and_then(|worker| worker.rss_bytes());
        let mut present = self.present();
        let mut fault = None;
        if let Some((told, lost_to, supplement)) = told {
            fault = lost_to;
            present.earlier = told.after(&present.earlier);
            let supplements = &mut present.account.supplements;
            // A guest may go through any number of workers, and each may add 60 KiB.
            if supplements.len() < SUPPLEMENTS_MAX {
                supplements.push(supplement);
            }
        }
        if let Some(fault) = worker.and_then(|worker| worker.fault()) {
            present.earlier.fault = Some(fault.to_string());
        }
        if let Some(rss_bytes) = rss_bytes {
            present.account.rss_bytes = rss_bytes;
        }
        if let Some(lost) = present.lost.take() {
            present.earlier = lost.report().after(&present.earlier);
        }
        fault
    }

    /// Notes that a client has given up what it had in a worker that can serve no more. True if it was the last.
    fn mourn(&self, client: Client) -> bool {
        let mut present = self.present();
        let had = present.worker.as_ref().map_or(0, |worker| worker.owners());
        let left = present.bereft.unwrap_or(had) & !client.bit();
        present.bereft = Some(left);
        left == 0
    }

    /// Ends a worker that can serve no more, while clients still have something in it: for them the device is lost. Work
    /// that does not end stops only with its process.
    fn dismiss(&self, worker: &Worker) {
        if worker.fault().is_none() {
            let fault = self.settle(Some(worker));
            worker.lose(fault.unwrap_or_else(|| worker.told("can serve no more")));
        }
    }

    /// Has another process take over from a worker that is of no use any more.
    fn replace(&self, old: Option<Arc<Worker>>) {
        self.settle(old.as_deref());
        if let Some(old) = &old {
            old.end("was replaced");
        }
        let started = Worker::start(&self.shared, &self.order);
        let mut present = self.present();
        present.account.restarts += 1;
        present.bereft = None;
        present.earlier.fault = None;
        present.earlier.statistics = present.earlier.statistics.without_gauges();
        match started {
            Ok(worker) => {
                present.lost = None;
                present.worker = Some(worker);
            }
            Err(error) => {
                log::error!("{}: {error}", self.order.name);
                let fault = Fault {
                    status: Status::DeviceLost,
                    text: error.to_string(),
                };
                present.worker = None;
                present.lost = Some(self.lost(fault));
            }
        }
        let worker = present.worker.clone();
        drop(present);
        // What was wished of the old one meanwhile holds for the new.
        if let Some(worker) = worker {
            if self.halted.load(Ordering::SeqCst) {
                worker.halt();
            } else if self.interrupted.load(Ordering::SeqCst) {
                worker.interrupt();
            }
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
        let worker = {
            let present = self.present();
            if present.closed {
                return;
            }
            present.worker.clone()
        };
        let fresh = worker.as_ref().is_some_and(|w| w.reset().unwrap_or(false));
        if !fresh {
            self.replace(worker);
        }
    }

    fn reset_client(&self, client: Client) {
        let _turn = self.turn.lock();
        let worker = {
            let present = self.present();
            if present.closed {
                return;
            }
            present.worker.clone()
        };
        let done = worker
            .as_ref()
            .is_some_and(|w| w.reset_client(client).unwrap_or(false));
        if done {
            return;
        }
        if self.mourn(client) {
            self.replace(worker);
        } else if let Some(worker) = worker {
            self.dismiss(&worker);
        }
    }

    fn owners(&self) -> u64 {
        let present = self.present();
        match (present.bereft, &present.worker) {
            _ if present.closed => 0,
            (Some(bereft), _) => bereft,
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
        let _turn = self.turn.lock();
        let worker = {
            let mut present = self.present();
            if std::mem::replace(&mut present.closed, true) {
                return;
            }
            present.worker.take()
        };
        if let Some(worker) = &worker {
            self.settle(Some(worker));
            worker.close();
        } else {
            self.settle(None);
        }
        let mut present = self.present();
        let fault = Fault {
            status: Status::DeviceLost,
            text: "the session is closed".to_owned(),
        };
        present.lost = Some(self.lost(fault));
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
        let (worker, lost, closed) = {
            let present = self.present();
            (present.worker.clone(), present.lost.clone(), present.closed)
        };
        let told = worker
            .as_ref()
            .and_then(|w| w.report(self.order.session).ok());
        let rss_bytes = worker.as_ref().and_then(|w| w.rss_bytes());
        let present = self.present();
        let mut total = present.earlier.clone();
        let mut account = present.account.clone();
        drop(present);
        if let Some((told, _, supplement)) = told {
            total = told.after(&total);
            account.supplements.push(supplement);
        }
        if let Some(lost) = lost.filter(|_| !closed) {
            total = lost.report().after(&total);
        }
        if let Some(fault) = worker.and_then(|worker| worker.fault()) {
            total.fault = Some(fault.to_string());
        }
        account.rss_bytes = rss_bytes.unwrap_or(account.rss_bytes);
        total.worker = Some(account);
        total
    }

    fn activity(&self) -> Option<Activity> {
        let (worker, closed) = {
            let present = self.present();
            (present.worker.clone(), present.closed)
        };
        let working = worker.filter(|worker| worker.fault().is_none());
        let sample = working.as_ref().map(|worker| worker.sample());
        let mut monitored = self.monitored.lock();
        match (working, sample) {
            (Some(worker), Some(sample)) => Some(monitored.add(worker.number, sample?)),
            _ => Some(Activity {
                statistics: monitored.total().without_gauges(),
                lost: !closed,
            }),
        }
    }
}

/// What monitors were told of the workers of one session: counts do not go back when one worker takes
/// over from another.
#[derive(Debug, Default)]
struct Monitored {
    /// Of earlier workers, as of their last samples.
    earlier: Statistics,
    /// Number and last sample of the present worker.
    present: Option<(u64, Statistics)>,
}

impl Monitored {
    /// Adds a sample of `worker`. Returns the activity of all workers together.
    fn add(&mut self, worker: u64, sample: Activity) -> Activity {
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
    fn total(&self) -> Statistics {
        let (_, last) = self.present.unwrap_or_default();
        last.after(&self.earlier)
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        self.close();
    }
}
