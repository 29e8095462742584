//! Failures that a guest can bring about at will.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error_chain::chain;

/// Failures that are logged as warnings; those behind them are for debugging only.
const WARNINGS_MAX: u64 = 4;

/// Counts failures, and logs the first few.
#[derive(Debug, Default)]
pub struct FailureCounter(AtomicU64);

impl FailureCounter {
    /// One more, with its causes. It names the device.
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
