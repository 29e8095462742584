//! Limits how often host memory is registered with the GPU once more.
//!
//! The Linux kernel pins the pages of each registration, and the driver keeps tables of them, in
//! memory of the kernel that no limit of a process counts: about 24 bytes for each page of 4 KiB.
//! One registration of each allocation and of guest RAM is bounded by their own limits. A mapping
//! with an address or rights of its own, an import, and a part of guest RAM are registered once
//! more, as often as the guest likes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::backend::BackendError;
use causeway_protocol::message::Status;

use crate::error::refused;

/// Bytes of host memory that may be registered once more, in addition to as much as guests may
/// allocate: each allocation has a second registration if the guest chooses its address.
const ADDITIONAL_BYTES: u64 = 64 << 30;
/// Bytes that the smallest registration counts as.
const LEAST_BYTES: u64 = 1 << 20;

/// Counts the bytes that are registered once more. A process holds one session, so this is the
/// session's account.
#[derive(Debug)]
pub(crate) struct Repeats {
    bytes: Arc<AtomicU64>,
    limit_bytes: u64,
}

impl Repeats {
    /// Returns the account of guests that may allocate `memory_bytes`.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        Self {
            bytes: Arc::default(),
            limit_bytes: memory_bytes.saturating_add(ADDITIONAL_BYTES),
        }
    }

    /// Counts `bytes` more bytes until the returned object is dropped.
    ///
    /// # Errors
    /// `NoMemory` if they would be more than the limit.
    pub(crate) fn count(&self, bytes: u64) -> Result<Repeat, BackendError> {
        let (counted, limit) = (bytes.max(LEAST_BYTES), self.limit_bytes);
        let sum = |before: u64| before.checked_add(counted).filter(|sum| *sum <= limit);
        let added = self
            .bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum);
        match added {
            Ok(_) => Ok(Repeat {
                all: Arc::clone(&self.bytes),
                counted,
            }),
            Err(before) => Err(refused(
                Status::NoMemory,
                format!(
                    "register {bytes} bytes of host memory once more: mappings of the same memory \
                     have {before} bytes already, and may have {limit}; unmap some"
                ),
            )),
        }
    }
}

/// Bytes that are counted as registered once more until dropped.
#[derive(Debug)]
pub(crate) struct Repeat {
    all: Arc<AtomicU64>,
    counted: u64,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_until_dropped() {
        let repeats = Repeats::new(1 << 30);
        let most = repeats.count(64 << 30).unwrap();
        let small: Vec<Repeat> = (0..1024).map(|_| repeats.count(4096).unwrap()).collect();
        let error = repeats.count(4096).unwrap_err();
        assert_eq!(error.status, Status::NoMemory);
        assert!(error.context.contains("may have 69793218560"), "{error}");
        repeats.count(u64::MAX).unwrap_err();
        drop(small);
        let _rest = repeats.count(1 << 30).unwrap();
        drop(most);
        let _again = repeats.count(64 << 30).unwrap();
    }
}
