//! A session: one guest's state, from the VMM's side.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use causeway_protocol::registers::status;

use crate::backend::{Attributes, Backend, Fault};
use crate::batch;
use crate::client::Client;
use crate::client_session::ClientSession;
use crate::host::Host;
use crate::quota::Quota;
use crate::session_inner::SessionInner;
use crate::share::Exchange;
use crate::statistics::Counters;

/// How often a revocation that waits looks again.
const REVOCATION_PERIOD: Duration = Duration::from_micros(200);

/// One guest's session. All methods may be called from any thread at any time; two batches executed at
/// once interleave by message. Dropping it closes it.
pub struct Session {
    inner: Arc<SessionInner>,
}

impl Session {
    pub(crate) fn open(
        id: u64,
        name: &str,
        backend: Arc<dyn Backend>,
        host: Arc<dyn Host>,
        exchange: Arc<dyn Exchange>,
        quota: Quota,
    ) -> Arc<Self> {
        let inner = SessionInner::new(id, name, backend, host, exchange, quota);
        Arc::new(Self { inner })
    }

    pub(crate) fn inner(&self) -> &SessionInner {
        &self.inner
    }

    /// Executes a control batch of a client, that is a private copy of what the guest wrote, and puts the replies in
    /// its place. `Ok`, or why the batch as a whole was not taken; it is then unchanged.
    ///
    /// Sleeps if the batch has a `Wait` in it; [`Self::interrupt`] ends that.
    pub fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        Counters::add(&self.inner.counters.counted.batches);
        let session = &*self.inner;
        batch::execute(&ClientSession { session, client }, batch)
    }

    /// Ends everything the guest owns and starts afresh (register `Reset` of page 0). Returns when the consumers
    /// have stopped and nothing is left in the aperture.
    pub fn reset(&self) {
        self.inner.end_generation(false);
    }

    /// Ends everything that a client owns, and nothing else. Returns when its consumers have stopped, nothing of it is left
    /// in the aperture, and no interrupt of it will be raised. A session that is lost starts afresh once no client owns
    /// anything.
    ///
    /// Work under way may go on for [`Backend::grace`] first. If it cannot be ended but at the expense of the device
    /// ([`Backend::is_poisoned`]), the session is lost for all others.
    pub fn reset_client(&self, client: Client) {
        self.inner.reset_client(client);
    }

    /// The clients that own something, as [`Client::bit`] has them.
    pub fn owners(&self) -> u64 {
        self.inner.owners.bits()
    }

    /// As [`Self::observe_status`], for [`Self::owners`].
    pub fn observe_owners(&self, tell: impl Fn(u64) + Send + Sync + 'static) {
        self.inner.owners.observe(Box::new(tell));
    }

    /// Content of register `Status`.
    pub fn status_bits(&self) -> u32 {
        let state = self.inner.lock();
        match (state.closed, state.generation.ended()) {
            (true, _) => 0,
            (false, true) => status::LOST,
            (false, false) => status::READY,
        }
    }

    /// Makes a `Wait` that sleeps return with `TimedOut`, and every later one return at once: the VMM
    /// wants its vCPU threads back.
    pub fn interrupt(&self) {
        self.inner.interrupted.store(true, Ordering::SeqCst);
        self.inner.signal.notify();
    }

    /// Has batches end with the message they are at, as the guest is not there to read the replies: one batch can
    /// hold minutes of work. What follows has the status `NotRun`. Interrupts waits too.
    pub fn halt(&self) {
        self.inner.halted.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    /// Ends the session for good, as dropping it does: consumers are stopped and joined, doorbells and
    /// aperture given back, exports revoked, memory released. A second call does nothing.
    pub fn close(&self) {
        self.inner.end_generation(true);
    }

    /// Number of the session in its mediator, as logs name it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// What its back end is.
    pub fn attributes(&self) -> Attributes {
        self.inner.backend.attributes().clone()
    }

    /// Has `tell` told what register `Status` holds, at every change from now on. Only the first caller is heard, who
    /// comes before the session does anything. `tell` is called with locks held: it stores the number and returns.
    pub fn observe_status(&self, tell: impl Fn(u32) + Send + Sync + 'static) {
        self.inner.status.observe(Box::new(tell));
    }

    /// Takes an import away, as the exchange it came from wants it (see [`Importing`]), and waits for work under way
    /// that uses it, but no longer than `patience`. False if the memory is still held then.
    #[must_use]
    pub fn revoke_import(&self, handle: u32, import: u64, patience: Duration) -> bool {
        let Some(memory) = self.inner.take_import(handle, import) else {
            return true;
        };
        let begun = Instant::now();
        while memory.strong_count() != 0 {
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(REVOCATION_PERIOD);
        }
        true
    }

    /// What the session was lost to, if it was.
    pub fn fault(&self) -> Option<Fault> {
        self.inner.lock().generation.fault()
    }

    /// Ends it as a fault in its work does, for a reason that its owner knows.
    pub fn lose(&self, fault: Fault) {
        Counters::add(&self.inner.counters.counted.faults);
        self.inner.generation().lose(fault);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
