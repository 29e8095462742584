//! A session as the VMM sees it, in the VMM's own process or in a worker process.

use std::io;
use std::sync::Arc;

use causeway_protocol::message::Status;

use crate::backend::{Attributes, Fault};
use crate::client::Client;
use crate::host::Host;
use crate::quota::{LimitChange, LimitError, Quota};
use crate::report::SessionReport;
use crate::rights::Rights;
use crate::statistics::Activity;

/// Why a VMM could not open a session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The host lacks what the back end needs: a driver, the device, or memory.
    #[error("{reason}")]
    Unavailable {
        /// What the host lacks and, if possible, how to provide it.
        reason: String,
    },
    /// The kernel did not start a process to hold the session.
    #[error("cannot start the worker process of {name}")]
    Start {
        /// Name of the VM.
        name: String,
        /// The kernel's error.
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
    /// Nobody waits for the session any more: see [`GivesUp`].
    #[error("nobody waits for the session of {name} any more")]
    GivenUp {
        /// Name of the VM.
        name: String,
    },
}

/// Asked several times a second while a session opens, which can take long: a driver starts up. If
/// it returns true, opening fails with [`OpenError::GivenUp`].
pub type GivesUp<'a> = &'a mut dyn FnMut() -> bool;

/// When new limits of a session hold for its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InForce {
    /// They hold now.
    AtOnce,
    /// The session is in another process, which does not answer. They hold when it does, or when
    /// another process takes its place.
    Later,
}

/// One guest's session, which the VMM drives. Any thread may call any method at any time. Dropping
/// the session closes it.
pub trait GuestSession: Send + Sync {
    /// Executes a control batch of `client` and writes the replies over the requests in `batch`,
    /// which is a private copy of what the guest wrote. Returns `Ok`, or the reason why the whole
    /// batch was refused; a refused batch does not change.
    ///
    /// A `Wait` message in the batch makes this call sleep; [`Self::interrupt`] ends the sleep.
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status;

    /// Destroys all objects of the guest and begins a new generation. The VMM calls this when the
    /// guest writes to the device register `Reset` of page 0. When this returns, no consumer runs
    /// and the aperture is empty.
    fn reset(&self);

    /// Destroys all objects of `client`, and no others. The VMM calls this when the client writes
    /// to the device register `Reset` of its own page. When this returns, no consumer of the client
    /// runs, none of its memory is in the aperture, and its interrupt will not be raised. If the
    /// session is lost and no client owns an object any more, a new generation begins.
    ///
    /// Running work of the client may continue for the time that [`crate::backend::Backend::grace`]
    /// returns before it is stopped. If the stop poisons the back end
    /// ([`crate::backend::Backend::is_poisoned`]), the session is lost for the other clients too.
    fn reset_client(&self, client: Client);

    /// Returns the clients that own objects, as a set of [`Client::bit`]s. The call costs one load
    /// from memory.
    fn owners(&self) -> u64;

    /// Returns the content of the device register `Status`. The call costs little more than a load
    /// from memory.
    fn status_bits(&self) -> u32;

    /// Makes a sleeping `Wait` message end, with status `TimedOut`. Later `Wait` messages do not
    /// sleep any more. The VMM calls this when its virtual CPUs have to stop.
    fn interrupt(&self);

    /// Makes each batch end after the message that is being executed; the messages after that one
    /// get status `NotRun`. Also ends waits, as [`Self::interrupt`] does. The VMM calls this when
    /// its guest has stopped: one batch can take minutes.
    fn halt(&self);

    /// Ends the session for good, as dropping it does: waits for the consumers to end, unbinds
    /// doorbells, empties the aperture, revokes exports and frees memory. A second call does
    /// nothing.
    fn close(&self);

    /// Returns the number of the session, which logs show.
    fn id(&self) -> u64;

    /// Returns sizes, limits and features of the session's back end.
    fn attributes(&self) -> Attributes;

    /// Returns the fault that lost the session; `None` if it is not lost.
    fn fault(&self) -> Option<Fault>;

    /// Returns what the session has done so far, for reports.
    fn report(&self) -> SessionReport;

    /// Returns the session's present limits.
    fn limits(&self) -> Quota;

    /// Checks whether [`Self::set_limits`] can make `change`.
    ///
    /// # Errors
    /// Why not.
    fn check_limits(&self, change: &LimitChange) -> Result<(), LimitError>;

    /// Changes limits of the session. A limit below what is in use takes nothing away: further
    /// requests of the guest fail until enough is free. Waits a fraction of a second at most, if
    /// the session is in another process.
    ///
    /// # Errors
    /// Why the session cannot have these limits; then none has changed.
    fn set_limits(&self, change: &LimitChange) -> Result<InForce, LimitError>;

    /// Returns the session's statistics without disturbing its work; `None` if the session is in
    /// another process that does not answer within a fraction of a second.
    fn activity(&self) -> Option<Activity>;

    /// Returns the rights to memory that the session has given to others, and has of others.
    fn rights(&self) -> Rights;
}

/// Opens sessions for a VMM, in the VMM's own process or in worker processes.
pub trait SessionSource: Send + Sync {
    /// Opens a session for the guest of VMM `host`, with the limits `quota`. `name` shows in logs
    /// and reports.
    ///
    /// # Errors
    /// * [`OpenError::Unavailable`] if the host lacks what the back end needs.
    /// * [`OpenError::Start`] if the kernel fails to start the worker process.
    /// * [`OpenError::Ended`] if the worker process ends before the session is open.
    /// * [`OpenError::GivenUp`] if `gives_up` returned true before.
    ///
    /// After an error, neither a session nor a process remains.
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
        gives_up: GivesUp<'_>,
    ) -> Result<Arc<dyn GuestSession>, OpenError>;
}
