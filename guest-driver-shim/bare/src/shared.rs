//! A value that one CPU creates and all CPUs use.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

/// States of the value: absent, being written, and present.
const EMPTY: u32 = 0;
const BUSY: u32 = 1;
const FULL: u32 = 2;

/// A value that one CPU sets once, and that all CPUs then use until the guest ends.
pub struct Shared<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written once, by the CPU that moved the state from EMPTY to BUSY, and given
// out as a shared reference only after the state is FULL; `Send` because one CPU makes what others
// use.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    /// Returns a `Shared` without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Sets the value and returns a reference to it.
    ///
    /// # Panics
    /// If the value is already set.
    pub fn set(&'static self, value: T) -> &'static T {
        let claimed =
            self.state
                .compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        assert!(claimed.is_ok(), "a shared value is set once");
        // SAFETY: the exchange has succeeded, so this CPU alone is here, and nobody has a reference
        // yet.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(FULL, Ordering::Release);
        self.wait()
    }

    /// Waits until a CPU has set the value, and returns a reference to it.
    pub fn wait(&'static self) -> &'static T {
        while self.state.load(Ordering::Acquire) != FULL {
            core::hint::spin_loop();
        }
        // SAFETY: FULL: it has been written, and is never written again.
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self::new()
    }
}
