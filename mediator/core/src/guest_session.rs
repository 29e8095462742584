//! What a VMM sees of sessions, wherever they are: in its own process, or in a worker process of their own.

use std::io;
use std::sync::Arc;

use causeway_protocol::message::Status;

use crate::backend::{Attributes, Fault};
use crate::client::Client;
use crate::host::Host;
use crate::mediator::Mediator;
use crate::quota::Quota;
use crate::report::SessionReport;
use crate::session::Session;
use crate::statistics::Activity;

/// Why there is no session for a guest.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The back end is not to be had on this host: no driver, no such device, not enough memory.
    #[error("{reason}")]
    Unavailable {
        /// What the back end said, and the way out.
        reason: String,
    },
    /// No process to hold the session.
    #[error("cannot start the worker process of {name}")]
    Start {
        /// Name of the VM.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process that was to hold the session failed before there was one.
    #[error("the worker process of {name} {how}")]
    Ended {
        /// Name of the VM.
        name: String,
        /// How it failed.
        how: String,
    },
}

/// One guest's session. All methods may be called from any thread at any time. Dropping it closes it.
pub trait GuestSession: Send + Sync {
    /// Executes a control batch of a client, that is a private copy of what the guest wrote, and puts the replies in
    /// its place. `Ok`, or why the batch as a whole was not taken; it is then unchanged.
    ///
    /// Sleeps if the batch has a `Wait` in it; [`Self::interrupt`] ends that.
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status;

    /// Ends everything the guest owns and starts afresh (register `Reset` of page 0). When it returns, no consumer runs
    /// and nothing is left in the aperture.
    fn reset(&self);

    /// Ends everything that a client owns, and nothing else (register `Reset` of its page). When it returns, no consumer of
    /// it runs, nothing of it is left in the aperture, and no interrupt of it will be raised. A session that is lost starts
    /// afresh once no client owns anything.
    fn reset_client(&self, client: Client);

    /// The clients that own something, as [`Client::bit`] has them. Costs no more than a load from memory.
    fn owners(&self) -> u64;

    /// Content of register `Status`. Costs no more than a load from memory.
    fn status_bits(&self) -> u32;

    /// Makes a `Wait` that sleeps return with `TimedOut`, and every later one return at once: the VMM
    /// wants its vCPU threads back.
    fn interrupt(&self);

    /// Has batches end with the message they are at, as the guest is not there to read the replies. What follows has
    /// the status `NotRun`. Interrupts waits too.
    fn halt(&self);

    /// Ends the session for good, as dropping it does: consumers are stopped and joined, doorbells and
    /// aperture given back, exports revoked, memory released. A second call does nothing.
    fn close(&self);

    /// Number of the session, as logs name it.
    fn id(&self) -> u64;

    /// What the back end is.
    fn attributes(&self) -> Attributes;

    /// What the session was lost to, if it was.
    fn fault(&self) -> Option<Fault>;

    /// What it has done so far.
    fn report(&self) -> SessionReport;

    /// What it is doing, for those who watch. Disturbs nothing that it does, and takes a fraction of a second at most; none if
    /// it cannot be had in that time.
    fn activity(&self) -> Option<Activity>;
}

/// Where a VMM gets sessions from.
pub trait SessionSource: Send + Sync {
    /// A session for one guest. `name` is for logs and reports.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing is left of the attempt.
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
    ) -> Result<Arc<dyn GuestSession>, OpenError>;
}

impl SessionSource for Mediator {
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
    ) -> Result<Arc<dyn GuestSession>, OpenError> {
        Ok(Mediator::open(self, host, quota, name))
    }
}

impl GuestSession for Session {
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        Session::execute(self, client, batch)
    }

    fn reset_client(&self, client: Client) {
        Session::reset_client(self, client);
    }

    fn owners(&self) -> u64 {
        Session::owners(self)
    }

    fn reset(&self) {
        Session::reset(self);
    }

    fn status_bits(&self) -> u32 {
        Session::status_bits(self)
    }

    fn interrupt(&self) {
        Session::interrupt(self);
    }

    fn halt(&self) {
        Session::halt(self);
    }

    fn close(&self) {
        Session::close(self);
    }

    fn id(&self) -> u64 {
        Session::id(self)
    }

    fn attributes(&self) -> Attributes {
        Session::attributes(self)
    }

    fn fault(&self) -> Option<Fault> {
        Session::fault(self)
    }

    fn report(&self) -> SessionReport {
        Session::report(self)
    }

    fn activity(&self) -> Option<Activity> {
        Some(Session::activity(self))
    }
}

impl<S: GuestSession + ?Sized> GuestSession for Arc<S> {
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        (**self).execute(client, batch)
    }

    fn reset_client(&self, client: Client) {
        (**self).reset_client(client);
    }

    fn owners(&self) -> u64 {
        (**self).owners()
    }

    fn reset(&self) {
        (**self).reset();
    }

    fn status_bits(&self) -> u32 {
        (**self).status_bits()
    }

    fn interrupt(&self) {
        (**self).interrupt();
    }

    fn halt(&self) {
        (**self).halt();
    }

    fn close(&self) {
        (**self).close();
    }

    fn id(&self) -> u64 {
        (**self).id()
    }

    fn attributes(&self) -> Attributes {
        (**self).attributes()
    }

    fn fault(&self) -> Option<Fault> {
        (**self).fault()
    }

    fn report(&self) -> SessionReport {
        (**self).report()
    }

    fn activity(&self) -> Option<Activity> {
        (**self).activity()
    }
}
