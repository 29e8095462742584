//! Answers to calls of a worker that were refused or failed.

use std::io;

use causeway_mediator::host::PlaceError;
use causeway_memory::MemoryError;
use rustix::io::Errno;

use super::objects::Overdraft;
use crate::wire::{Answer, Outcome};

/// The answer to a call that was refused or failed.
pub(super) struct Refused(pub Answer);

impl Refused {
    pub fn new(outcome: Outcome, errno: Option<i32>) -> Self {
        let mut answer = Answer::new(outcome as u32);
        let errno = errno.unwrap_or(Errno::IO.raw_os_error());
        answer.errno = errno.unsigned_abs();
        Self(answer)
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::new(Outcome::Slot, Some(error.raw_os_error()))
    }
}

impl From<PlaceError> for Refused {
    fn from(error: PlaceError) -> Self {
        log::debug!("aperture: {error}");
        let (outcome, errno) = match &error {
            PlaceError::Full { .. } => (Outcome::Full, None),
            PlaceError::Map { source, .. } => (Outcome::Map, errno_of(source)),
            PlaceError::Slot { source, .. } => (Outcome::Slot, source.raw_os_error()),
            PlaceError::Absent { .. } => (Outcome::Absent, None),
        };
        Self::new(outcome, errno)
    }
}

impl From<Overdraft> for Refused {
    fn from(error: Overdraft) -> Self {
        log::warn!("refused memory of a worker process: {error}");
        let errno = match error {
            Overdraft::Descriptors => Errno::MFILE,
            Overdraft::Bytes { .. } | Overdraft::Count { .. } => Errno::NOMEM,
            Overdraft::Resized => Errno::INVAL,
            Overdraft::Foreign => Errno::ACCESS,
        };
        Self::new(Outcome::Slot, Some(errno.raw_os_error()))
    }
}

fn errno_of(error: &MemoryError) -> Option<i32> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<io::Error>()?.raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_hears_why_the_kernel_refuses_memory() {
        let source = MemoryError::Map {
            bytes: 4096,
            source: Errno::NOMEM.into(),
        };
        let Refused(answer) = PlaceError::Map {
            bytes: 4096,
            source,
        }
        .into();
        assert_eq!(answer.outcome, Outcome::Map as u32);
        assert_eq!(answer.errno, Errno::NOMEM.raw_os_error().unsigned_abs());
    }
}
