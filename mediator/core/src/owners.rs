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

    /// Sets the observer. Only the first call has an effect.
    pub fn observe(&self, observer: Observer) {
        let _ = self.observer.set(observer);
    }

    /// Stores the set of clients that own objects, and calls the observer if it has changed. The
    /// caller holds the session's lock, which keeps the calls in order.
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
    /// Counts a new object of `client`. Returns true if it is the client's only object.
    pub fn add(&mut self, client: Client) -> bool {
        let count = &mut self.0[client.index()];
        *count += 1;
        *count == 1
    }

    /// Counts an object of `client` as removed. Returns true if the client has no object left.
    pub fn subtract(&mut self, client: Client) -> bool {
        let count = &mut self.0[client.index()];
        *count = count.saturating_sub(1);
        *count == 0
    }
}
