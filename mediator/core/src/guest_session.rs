//! A session as the VMM sees it, in the VMM's own process or in a worker process.

use std::io;
use std::sync::Arc;

use causeway_protocol::message::Status;

use crate::backend::{Attributes, Fault};
use crate::client::Client;
use crate::host::Host;
use crate::quota::Quota;
use crate::report::SessionReport;
use crate::statistics::Activity;

/// Why a VMM could not open a session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The host lacks what the back end needs: a driver, the device, or memory.
    #[error("{reason}")]
    Unavailable {
        /// What the back end said, and the way out.
        reason: String,
    },
    /// The kernel did not start a process to hold the session.
    #[error("cannot start the worker process of {name}")]
    Start {
        /// Name of the VM.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process that was to hold the session failed before it had opened the session.
    #[error("the worker process of {name} {how}")]
    Ended {
        /// Name of the VM.
        name: String,
        /// How the process failed, as the end of a sentence: "was killed by signal 9".
        how: String,
    },
}

/// One guest's session, which the VMM drives. Any thread may call any method at any time. Dropping
/// the session closes it.
pub trait GuestSession: Send + Sync {
    /// Executes a control batch of `client` and writes the replies over the requests. `batch` is a
    /// private copy of what the guest wrote. Returns `Ok`, or why the batch as a whole was refused;
    /// a refused batch is unchanged.
    ///
    /// Sleeps while the batch is at a `Wait` message; [`Self::interrupt`] ends the sleep.
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status;

    /// Ends everything that the guest owns, and begins a new generation (register `Reset` of page
    /// 0). When it returns, no consumer runs and the aperture is empty.
    fn reset(&self);

    /// Ends everything that `client` owns, and nothing else (register `Reset` of its page). When it
    /// returns, no consumer of the client runs, nothing of it is in the aperture, and no interrupt
    /// of it will be raised. If the session is lost and no client owns anything any more, a new
    /// generation begins.
    ///
    /// The client's work may go on for [`crate::backend::Backend::grace`] first. If ending it
    /// poisons the back end ([`crate::backend::Backend::is_poisoned`]), the other clients lose the
    /// session.
    fn reset_client(&self, client: Client);

    /// Returns the clients that own something, as a set of [`Client::bit`]s. Costs a load from
    /// memory.
    fn owners(&self) -> u64;

    /// Returns the content of register `Status`. Costs little more than a load from memory.
    fn status_bits(&self) -> u32;

    /// Ends a `Wait` that sleeps, and every later one at once, with status `TimedOut`. The VMM
    /// calls it when it wants its virtual CPU threads back.
    fn interrupt(&self);

    /// Ends batches after the message that they are at; the messages behind it get status `NotRun`.
    /// Interrupts waits too. The VMM calls it when no guest is left to read replies: one batch can
    /// hold minutes of work.
    fn halt(&self);

    /// Ends the session for good, as dropping it does: joins the consumers, gives back doorbells
    /// and aperture, revokes exports and releases memory. A second call does nothing.
    fn close(&self);

    /// Returns the number of the session, as logs name it.
    fn id(&self) -> u64;

    /// Returns the attributes of the back end.
    fn attributes(&self) -> Attributes;

    /// Returns the fault that lost the session; `None` if it is not lost.
    fn fault(&self) -> Option<Fault>;

    /// Returns what the session has done so far.
    fn report(&self) -> SessionReport;

    /// Returns the session's statistics without disturbing its work. Takes a fraction of a second
    /// at most; `None` if the session's process does not answer in that time.
    fn activity(&self) -> Option<Activity>;
}

/// A VMM's source of sessions.
pub trait SessionSource: Send + Sync {
    /// Opens a session for one guest. `name` is for logs and reports.
    ///
    /// # Errors
    /// * [`OpenError::Unavailable`] if the host lacks what the back end needs.
    /// * [`OpenError::Start`] if the kernel starts no worker process.
    /// * [`OpenError::Ended`] if the worker process ends before the session is open.
    ///
    /// Nothing is left of a failed attempt.
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
    ) -> Result<Arc<dyn GuestSession>, OpenError>;
}
