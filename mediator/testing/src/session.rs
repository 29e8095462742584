//! A session that notes what a VMM asks of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::{Attributes, Fault};
use causeway_mediator::{
    Activity, Client, GuestSession, InForce, LimitChange, LimitError, LiveLimits, Quota, Rights,
    SessionReport,
};
use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use parking_lot::Mutex;

type Execute = dyn Fn(&mut [u8]) -> Status + Send + Sync;

/// A session without a back end, for tests of a VMM's device.
pub struct FakeSession {
    execute: Box<Execute>,
    owners: AtomicU64,
    calls: Mutex<Calls>,
    limits: LiveLimits,
}

#[derive(Clone, Debug, Default)]
struct Calls {
    batches: Vec<(Client, usize)>,
    resets: usize,
    client_resets: Vec<Client>,
}

impl FakeSession {
    /// Creates a session that executes batches by `execute`, and that is ready.
    pub fn new(execute: impl Fn(&mut [u8]) -> Status + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            execute: Box::new(execute),
            owners: AtomicU64::new(0),
            calls: Mutex::default(),
            limits: LiveLimits::new(&Quota::default()),
        })
    }

    /// Sets the clients that own something, as a set of [`Client::bit`]s.
    pub fn set_owners(&self, owners: u64) {
        self.owners.store(owners, Ordering::Relaxed);
    }

    /// Returns the batches that were executed: client and size in bytes.
    pub fn batches(&self) -> Vec<(Client, usize)> {
        self.calls.lock().batches.clone()
    }

    /// Returns how often the session was reset.
    pub fn resets(&self) -> usize {
        self.calls.lock().resets
    }

    /// Returns the clients that were reset, in order.
    pub fn client_resets(&self) -> Vec<Client> {
        self.calls.lock().client_resets.clone()
    }
}

impl fmt::Debug for FakeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeSession")
            .field("calls", &*self.calls.lock())
            .finish_non_exhaustive()
    }
}

impl GuestSession for FakeSession {
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        let status = (self.execute)(batch);
        self.calls.lock().batches.push((client, batch.len()));
        status
    }

    fn reset(&self) {
        self.calls.lock().resets += 1;
    }

    fn reset_client(&self, client: Client) {
        self.calls.lock().client_resets.push(client);
    }

    fn owners(&self) -> u64 {
        self.owners.load(Ordering::Relaxed)
    }

    fn status_bits(&self) -> u32 {
        status::READY
    }

    fn interrupt(&self) {}

    fn halt(&self) {}

    fn close(&self) {}

    fn id(&self) -> u64 {
        0
    }

    fn attributes(&self) -> Attributes {
        Attributes {
            name: "fake".into(),
            memory_bytes: 4 << 30,
            granularity_bytes: 4096,
            va: 0..0,
            compute_units: 0,
            warp_threads: 0,
            block_threads_max: 0,
            shared_bytes_max: 0,
            features: 0,
        }
    }

    fn fault(&self) -> Option<Fault> {
        None
    }

    fn report(&self) -> SessionReport {
        SessionReport::default()
    }

    fn limits(&self) -> Quota {
        self.limits.quota()
    }

    fn check_limits(&self, change: &LimitChange) -> Result<(), LimitError> {
        change.check(self.attributes().memory_bytes, false)
    }

    fn set_limits(&self, change: &LimitChange) -> Result<InForce, LimitError> {
        self.check_limits(change)?;
        self.limits.change(change);
        Ok(InForce::AtOnce)
    }

    fn rights(&self) -> Rights {
        Rights::default()
    }

    fn activity(&self) -> Option<Activity> {
        None
    }
}
