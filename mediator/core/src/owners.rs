//! The set of clients that own objects, for readers without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::registers::CLIENTS;

use crate::client::Client;

type Observer = Box<dyn Fn(u64) + Send + Sync>;

/// The set of clients that own objects, and an observer of its changes.
#[derive(Default)]
pub(crate) struct Owners {
    bits: AtomicU64,
    observer: OnceLock<Observer>,
}

impl Owners {
    /// Returns the clients that own objects, as a set of [`Client::bit`]s.
    pub fn bits(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Sets the function that is called at each change of the set. Only the first call of this
    /// method has an effect.
    pub fn observe(&self, observer: Observer) {
        let _ = self.observer.set(observer);
    }

    /// Replaces the set of clients with `bits`, and calls the observer if that changed the set.
    /// Callers must hold the lock on the session's state, so that the calls come in the order of
    /// the changes.
    pub fn set(&self, bits: u64) {
        if self.bits.swap(bits, Ordering::AcqRel) != bits
            && let Some(observer) = self.observer.get()
        {
            observer(bits);
        }
    }
}

/// The number of objects that each client owns.
pub(crate) struct Counts([u32; CLIENTS as usize]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; CLIENTS as usize])
    }
}

impl Counts {
    /// Adds 1 to the number of objects that `client` owns. Returns true if the client owned none
    /// before.
    pub fn add(&mut self, client: Client) -> bool {
        let count = &mut self.0[client.index()];
        *count += 1;
        *count == 1
    }

    /// Subtracts 1 from the number of objects that `client` owns. Returns true if the client now
    /// owns none.
    pub fn subtract(&mut self, client: Client) -> bool {
        let count = &mut self.0[client.index()];
        *count = count.saturating_sub(1);
        *count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[test]
    fn an_observer_hears_of_changes_and_of_nothing_else() {
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let told = Arc::clone(&heard);
        let owners = Owners::default();
        owners.observe(Box::new(move |bits| told.lock().push(bits)));
        for bits in [0, 1, 1, 3, 0] {
            owners.set(bits);
        }
        assert_eq!(*heard.lock(), [1, 3, 0]);
    }
}
