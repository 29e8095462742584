//! Failures that a guest can cause as often as it likes.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error_chain::chain;

/// Failures that are logged as warnings. Later ones are logged as debug.
const WARNINGS_MAX: u64 = 4;

/// Counts failures of a passed-through device, and logs the first few as warnings.
#[derive(Debug, Default)]
pub struct FailureCounter(AtomicU64);

impl FailureCounter {
    /// Counts a failure, and logs `error` with its causes: as a warning if it is one of the first
    /// few, else as a debug message.
    pub fn add(&self, error: &dyn Error) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let level = if before < WARNINGS_MAX {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        log::log!(level, "{}", chain(error));
    }

    /// Returns the number of failures so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
