//! Sessions in worker processes, one process each.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_mediator::host::Host;
use causeway_mediator::{GivesUp, GuestSession, LiveLimits, OpenError, Quota, SessionSource};
use parking_lot::Mutex;

use super::broker::Broker;
use super::leases::Leases;
use super::session::WorkerSession;
use super::shared::{ImportDevice, Order, Shared};
use super::spare::{Fresh, Spare};
use super::starter::{Program, Starter};
use super::successor::Successor;
use crate::bus_error;

/// Opens sessions for a VMM on one GPU, each in a worker process of its own. Sessions of one
/// `Workers`, and of those that are made beside it, can share memory with each other.
pub struct Workers {
    shared: Arc<Shared>,
    sessions: Arc<AtomicU64>,
    /// Workers without a session, the oldest first.
    spares: Mutex<VecDeque<Spare>>,
    successor: Arc<Successor>,
}

causeway_memory::debug_fields!(Workers {});

impl Workers {
    /// Returns a source of sessions on the only GPU, or the first of several, that starts `program`
    /// for each session, by a process that it starts now: later, this one may have given up what
    /// that takes. If `import_device` is `None`,
    /// guests cannot map device memory for their CPUs.
    ///
    /// All these processes end when the thread ends that calls this.
    ///
    /// # Errors
    /// The kernel's error, if this process cannot start a process or a thread, or install a signal
    /// handler.
    pub fn new(program: &Program, import_device: Option<Arc<ImportDevice>>) -> io::Result<Self> {
        bus_error::survive()?;
        Self::on(0, program, import_device, (Arc::default(), Arc::default()))
    }

    /// Returns a source of sessions as [`Self::new`] does, on another GPU, which has the number
    /// `gpu`. Its sessions share memory with those of this one where exports name the GPU.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn beside(
        &self,
        gpu: u32,
        program: &Program,
        import_device: Option<Arc<ImportDevice>>,
    ) -> io::Result<Self> {
        let (broker, sessions) = (Arc::clone(&self.shared.broker), Arc::clone(&self.sessions));
        Self::on(gpu, program, import_device, (broker, sessions))
    }

    fn on(
        gpu: u32,
        program: &Program,
        import_device: Option<Arc<ImportDevice>>,
        (broker, sessions): (Arc<Broker>, Arc<AtomicU64>),
    ) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared {
                starter: Starter::new(program)?,
                broker,
                gpu,
                partitions: Arc::default(),
                import_device,
                leases: Leases::new()?,
                overdue: Arc::default(),
            }),
            sessions,
            spares: Mutex::default(),
            successor: Arc::default(),
        })
    }

    /// Starts worker processes until `count` of them wait for a session to come. Each creates its
    /// back end at once, and opens a session faster for that. They end with this object.
    ///
    /// # Errors
    /// The kernel's error, if a process cannot be started.
    pub fn prepare(&self, count: usize) -> io::Result<()> {
        let mut spares = self.spares.lock();
        spares.retain(|spare| !spare.fresh.process.wait(Duration::ZERO));
        while spares.len() < count {
            let partition = self.shared.partitions.hold();
            let (session, number) = (self.next_number(), partition.number());
            let fresh = Fresh::start_ahead(&self.shared, session, number)?;
            spares.push_back(Spare { fresh, partition });
        }
        Ok(())
    }

    /// Waits until the worker that [`Self::prepare`] has started first has created its back end.
    /// Does nothing if there is none.
    ///
    /// # Errors
    /// [`OpenError::Unavailable`] if it cannot create its back end, [`OpenError::Ended`] if the
    /// process ends before, [`OpenError::GivenUp`] if `gives_up` returned true before. Then it is
    /// gone.
    pub fn await_prepared(&self, gives_up: GivesUp<'_>) -> Result<(), OpenError> {
        let mut spares = self.spares.lock();
        let Some(mut first) = spares.pop_front() else {
            return Ok(());
        };
        first.fresh.await_back_end(gives_up)?;
        spares.push_front(first);
        Ok(())
    }

    /// Starts no worker any more, and waits until the process has ended that does so. A session
    /// that is lost later stays lost. For a process that ends: threads may live on for a moment
    /// that would start workers for sessions that have ended.
    pub fn stop_starting(&self) {
        self.shared.starter.end();
    }

    /// Returns the process IDs (PIDs) of the workers without a session.
    pub fn spare_ids(&self) -> Vec<u32> {
        let spares = self.spares.lock();
        spares
            .iter()
            .map(|spare| spare.fresh.process.id())
            .collect()
    }

    /// Returns the process ID (PID) of the worker that waits to take the place of a lost one.
    #[cfg(test)]
    pub(crate) fn successor_id(&self) -> Option<u32> {
        self.successor.id()
    }

    fn next_number(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Opens a session as [`SessionSource::open`] does, but never gives up, and returns it as a
    /// [`WorkerSession`].
    ///
    /// # Errors
    /// [`OpenError::Unavailable`] if the worker cannot create its back end, [`OpenError::Start`] if
    /// the kernel fails to start the worker process, [`OpenError::Ended`] if the process ends
    /// before the session is open.
    pub fn open_worker(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
    ) -> Result<Arc<WorkerSession>, OpenError> {
        self.open_unless(host, quota, name, &mut || false)
    }

    fn open_unless(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
        gives_up: GivesUp<'_>,
    ) -> Result<Arc<WorkerSession>, OpenError> {
        let spare = self.spares.lock().pop_front();
        let number = spare.as_ref().map(|spare| spare.fresh.session);
        let order = Order {
            session: number.unwrap_or_else(|| self.next_number()),
            partition: 0,
            name: name.to_owned(),
            host,
            limits: Arc::new(LiveLimits::new(&quota)),
            grants: Arc::default(),
            membership: self.shared.leases.join(quota.compute),
        };
        let shared = (Arc::clone(&self.shared), Arc::clone(&self.successor));
        WorkerSession::open(shared, order, spare, gives_up).map(Arc::new)
    }
}

impl SessionSource for Workers {
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
        gives_up: GivesUp<'_>,
    ) -> Result<Arc<dyn GuestSession>, OpenError> {
        Ok(self.open_unless(host, quota, name, gives_up)?)
    }
}
