//! What this process waits for that may never come, such as an answer of a driver. A command that
//! has to be ended names it. Each wait that ends is progress towards the command's end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Longest wait for the lock of the list.
const LOCKED: Duration = Duration::from_millis(100);

static NEXT: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
static WAITS: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());

/// A wait that lasts until this value is dropped.
#[derive(Debug)]
pub struct Wait(u64);

impl Wait {
    /// Begins to wait for `what`, such as "the GPU session of vm0 to close".
    pub fn begin(what: impl Into<String>) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        WAITS.lock().push((number, what.into()));
        Self(number)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        WAITS.lock().retain(|(number, _)| *number != self.0);
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns how many waits of this process have ended.
pub fn ended() -> u64 {
    ENDED.load(Ordering::Relaxed)
}

/// Returns what this process waits for, the oldest wait first.
pub fn current() -> Vec<String> {
    let waits = WAITS.try_lock_for(LOCKED);
    waits.map_or_else(Vec::new, |waits| {
        waits.iter().map(|(_, what)| what.clone()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_while_it_lasts() {
        let told = |what: &str| current().iter().any(|wait| wait == what);
        let (first, second) = (Wait::begin("the first"), Wait::begin("the second"));
        assert!(told("the first") && told("the second"));
        let before = ended();
        drop(first);
        assert!(ended() > before);
        assert!(!told("the first") && told("the second"));
        drop(second);
    }
}
