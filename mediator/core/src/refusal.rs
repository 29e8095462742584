//! Why a message failed, as the guest gets it.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_memory::MemoryError;
use causeway_protocol::message::Status;

use crate::backend::{BackendError, cause};
use crate::host::{PlaceError, RamError};

/// A status other than `Ok`, with its detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the mediator refused a message of the guest: {reason} (detail {detail:#x})",
    reason = status.text()
)]
pub(crate) struct Refusal {
    pub status: Status,
    pub detail: u32,
}

impl Refusal {
    pub fn new(status: Status) -> Self {
        Self { status, detail: 0 }
    }

    pub fn with(status: Status, detail: u32) -> Self {
        Self { status, detail }
    }

    pub fn bad_handle(handle: u32) -> Self {
        Self::with(Status::BadHandle, handle)
    }
}

/// Refuses with `status` if `condition` is true.
pub(crate) fn refuse_if(condition: bool, status: Status) -> Result<(), Refusal> {
    match condition {
        true => Err(Refusal::new(status)),
        false => Ok(()),
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::new(status)
    }
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        // The operator has to know about a failing back end, and about what the host or the device
        // lacks: the guest gets only the status. A guest can run out of memory as often as it
        // likes.
        static FAILURES: AtomicU64 = AtomicU64::new(0);
        static LACKS: AtomicU64 = AtomicU64::new(0);
        let level = match error.status {
            Status::BackEnd => warn_at_first(&FAILURES),
            Status::NoMemory | Status::Unsupported => warn_at_first(&LACKS),
            _ => log::Level::Debug,
        };
        log::log!(
            level,
            "the back end refused a request: {error}{}",
            cause(&error)
        );
        Self::new(error.status)
    }
}

impl From<PlaceError> for Refusal {
    fn from(error: PlaceError) -> Self {
        log::debug!("aperture: {error}{}", cause(&error));
        Self::new(Status::NoMemory)
    }
}

impl From<MemoryError> for Refusal {
    fn from(error: MemoryError) -> Self {
        log::debug!("cannot map memory of a guest: {error}{}", cause(&error));
        Self::new(Status::NoMemory)
    }
}

impl From<RamError> for Refusal {
    fn from(error: RamError) -> Self {
        log::debug!("{error}");
        Self::new(Status::BadRange)
    }
}

/// Returns the log level for an event that a guest can cause at will: a warning for the first few
/// times. Adds one to `times`.
pub(crate) fn warn_at_first(times: &AtomicU64) -> log::Level {
    const WARNINGS: u64 = 8;
    if times.fetch_add(1, Ordering::Relaxed) < WARNINGS {
        log::Level::Warn
    } else {
        log::Level::Debug
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level::{Debug, Warn};

    #[test]
    fn a_guest_can_cause_only_a_few_warnings() {
        let times = AtomicU64::new(0);
        let levels = [(); 10].map(|()| warn_at_first(&times));
        assert_eq!(
            (&levels[..8], &levels[8..]),
            (&[Warn; 8][..], &[Debug; 2][..])
        );
    }
}
