//! A session: one guest's state, from the VMM's side.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use causeway_protocol::registers::status;

use crate::backend::{Attributes, Fault, Pieces};
use crate::batch;
use crate::busy::Bursts;
use crate::client::Client;
use crate::client_session::ClientSession;
use crate::guest_session::{GuestSession, InForce};
use crate::lease::{LeaseOrder, Lender};
use crate::peers::Peers;
use crate::quota::{LimitChange, LimitError, Quota};
use crate::report::SessionReport;
use crate::rights::Rights;
use crate::session_inner::SessionInner;
use crate::statistics::{Activity, Counters};

/// One guest's session in this process. Several threads may execute batches at the same time; the
/// messages of these batches then interleave. Dropping the session closes it.
pub struct Session {
    pub(crate) inner: Arc<SessionInner>,
}

impl Session {
    /// Makes the session call `observer` each time that the set of clients that own objects
    /// ([`GuestSession::owners`]) changes. The argument is the new set: a bitwise OR of
    /// [`Client::bit`]s.
    ///
    /// Call this once, before the session is used; a second observer is ignored. The session holds
    /// locks while it calls `observer`, which must only store the set and return.
    pub fn observe_owners(&self, observer: impl Fn(u64) + Send + Sync + 'static) {
        self.inner.owners.observe(Box::new(observer));
    }

    /// Makes the session call `observer` each time that the content of the device register `Status`
    /// changes. The argument is the new content.
    ///
    /// Call this once, before the session is used; a second observer is ignored. The session holds
    /// locks while it calls `observer`, which must only store the content and return.
    pub fn observe_status(&self, observer: impl Fn(u32) + Send + Sync + 'static) {
        self.inner.status.observe(Box::new(observer));
    }

    /// Makes the session call `bursts` each time that what a command buffer has under way changes;
    /// and `pieces` for each piece of work that begins or ends on a device that runs behind, while
    /// the session has a limit on the time of its work.
    ///
    /// Call this once, before the session is used; later observers are ignored. The session holds
    /// locks while it calls them. Both must only store the numbers and return.
    pub fn observe_work(
        &self,
        bursts: impl Fn(Bursts) + Send + Sync + 'static,
        pieces: impl Fn(Pieces) + Send + Sync + 'static,
    ) {
        self.inner.counters.busy.observe(bursts);
        self.inner.command_buffers.watchdog.pulse().observe(pieces);
    }

    /// Takes an import away from the session, because the export was withdrawn. Removes all
    /// mappings of the import, those in the aperture through `peers`, and then waits at most
    /// `patience` for running work that uses the memory. Returns false if work still uses the
    /// memory after that time.
    ///
    /// `handle` and `import` are the fields of the [`Importer`](crate::share::Importer). Does
    /// nothing and returns true if `handle` no longer names import number `import`.
    #[must_use]
    pub fn revoke_import(
        &self,
        peers: &Peers,
        handle: u32,
        import: u64,
        patience: Duration,
    ) -> bool {
        let taken = self.inner.take_import(peers, handle, import);
        let deadline = Instant::now() + patience;
        taken.is_none_or(|taken| taken.is_let_go_by(deadline))
    }

    /// Executes `batch` for `client` as [`GuestSession::execute`] does, but reaches the VMM and
    /// other sessions through `peers`.
    pub fn execute_for(&self, peers: &Peers, client: Client, batch: &mut [u8]) -> Status {
        Counters::add(&self.inner.counters.counted.batches);
        let session = ClientSession {
            session: &self.inner,
            peers,
            client,
        };
        batch::execute(&session, batch)
    }

    /// Resets the session as [`GuestSession::reset`] does, but reaches the VMM and other sessions
    /// through `peers`.
    pub fn reset_for(&self, peers: &Peers) {
        self.inner.end_generation(peers, false);
    }

    /// Resets `client` as [`GuestSession::reset_client`] does, but reaches the VMM and other
    /// sessions through `peers`.
    pub fn reset_client_for(&self, peers: &Peers, client: Client) {
        self.inner.reset_client(peers, client);
    }

    /// Closes the session as [`GuestSession::close`] does, but reaches the VMM and other sessions
    /// through `peers`.
    pub fn close_for(&self, peers: &Peers) {
        self.inner.end_generation(peers, true);
    }

    /// Changes limits as [`GuestSession::set_limits`] does, for a caller that has checked them.
    pub fn put_limits(&self, change: &LimitChange) {
        self.inner.account.change(change);
        if let Err(e) = self.inner.command_buffers.watchdog.heed() {
            log::error!(
                "session {} ({}): cannot start the thread that ends work which takes too long, so \
                 timeout= has no effect: {e}",
                self.inner.id,
                self.inner.name
            );
        }
        if change.weight.is_some() || change.share_percent.is_some() {
            let member = &self.inner.command_buffers.member;
            member.change(|compute| change.compute(compute));
        }
    }

    /// Names the lender of the device, to which the session reports from now on. Until its first
    /// [`LeaseOrder::Ask`], the session uses the device without a lease.
    pub fn set_lender(&self, lender: Arc<dyn Lender>) {
        self.inner.command_buffers.lease.set_lender(lender);
    }

    /// Does what the lender says. The caller then calls [`Self::look_at_lease`].
    pub fn obey_lender(&self, order: LeaseOrder) {
        self.inner.command_buffers.lease.obey(order);
    }

    /// Gives the lease of the device back if it is time for that. Returns when to call this again;
    /// `None` if only a new order of the lender can make that necessary.
    pub fn look_at_lease(&self) -> Option<Instant> {
        self.inner.command_buffers.lease.look()
    }

    /// Makes the session lost because of `fault`. It stays lost until its next reset.
    pub fn lose(&self, fault: Fault) {
        Counters::add(&self.inner.counters.counted.faults);
        self.inner.generation().lose(fault);
    }
}

impl GuestSession for Session {
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        self.execute_for(&self.inner.peers, client, batch)
    }

    fn reset(&self) {
        self.reset_for(&self.inner.peers);
    }

    fn reset_client(&self, client: Client) {
        self.reset_client_for(&self.inner.peers, client);
    }

    fn owners(&self) -> u64 {
        self.inner.owners.bits()
    }

    fn status_bits(&self) -> u32 {
        let state = self.inner.lock();
        match (state.closed, state.generation.ended()) {
            (true, _) => 0,
            (false, true) => status::LOST,
            (false, false) => status::READY,
        }
    }

    fn interrupt(&self) {
        self.inner.interrupted.store(true, Ordering::SeqCst);
        self.inner.signal.notify();
    }

    fn halt(&self) {
        self.inner.halted.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    fn close(&self) {
        self.close_for(&self.inner.peers);
    }

    fn id(&self) -> u64 {
        self.inner.id
    }

    fn attributes(&self) -> Attributes {
        self.inner.backend.attributes().clone()
    }

    fn fault(&self) -> Option<Fault> {
        self.inner.lock().generation.fault()
    }

    fn report(&self) -> SessionReport {
        self.inner.report()
    }

    fn limits(&self) -> Quota {
        Quota {
            compute: self.inner.command_buffers.member.compute(),
            ..self.inner.account.quota()
        }
    }

    fn check_limits(&self, change: &LimitChange) -> Result<(), LimitError> {
        let backend = &self.inner.backend;
        change.check(backend.attributes().memory_bytes, backend.shares_time())
    }

    fn set_limits(&self, change: &LimitChange) -> Result<InForce, LimitError> {
        self.check_limits(change)?;
        self.put_limits(change);
        Ok(InForce::AtOnce)
    }

    fn activity(&self) -> Option<Activity> {
        Some(self.inner.activity())
    }

    fn rights(&self) -> Rights {
        self.inner.rights()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.inner.id)
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
