//! How much of the device's memory allocations and modules have taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the device that allocations may still take.
#[derive(Debug)]
pub(crate) struct Pool {
    free: AtomicU64,
}

impl Pool {
    /// Creates a pool of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicU64::new(bytes),
        })
    }

    /// Returns the bytes that no charge has taken.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes `bytes` bytes from the pool until the charge is dropped. Returns `None` if fewer are
    /// free.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(bytes)
            })
            .ok()?;
        Some(Charge {
            pool: Arc::clone(self),
            bytes,
        })
    }
}

/// Bytes taken from a [`Pool`].
#[derive(Debug)]
pub(crate) struct Charge {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_comes_back() {
        let pool = Pool::new(100);
        let charge = pool.charge(60).unwrap();
        assert!(pool.charge(41).is_none());
        drop(charge);
        assert_eq!(pool.free(), 100);
    }
}
