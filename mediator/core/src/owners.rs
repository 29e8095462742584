//! Which clients own something, for those who ask without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::registers::CLIENTS;

use crate::client::Client;

type Tell = Box<dyn Fn(u64) + Send + Sync>;

/// The set of clients that own something, and who wants to know it without asking.
#[derive(Default)]
pub(crate) struct Owners {
    bits: AtomicU64,
    observer: OnceLock<Tell>,
}

impl Owners {
    /// The set, as [`Client::bit`] has it.
    pub fn bits(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Takes the observer, unless there is one.
    pub fn observe(&self, tell: Tell) {
        let _ = self.observer.set(tell);
    }

    /// Called with the session's lock held, which keeps what is told in order.
    pub fn set(&self, bits: u64) {
        if self.bits.swap(bits, Ordering::AcqRel) != bits
            && let Some(tell) = self.observer.get()
        {
            tell(bits);
        }
    }
}

/// How many objects each client owns.
pub(crate) struct Counts([u32; CLIENTS as usize]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; CLIENTS as usize])
    }
}

impl Counts {
    /// Counts one more. True if it is the first.
    pub fn add(&mut self, client: Client) -> bool {
        let count = &mut self.0[client.index()];
        *count += 1;
        *count == 1
    }

    /// Counts one less. True if it was the last.
    pub fn subtract(&mut self, client: Client) -> bool {
        let count = &mut self.0[client.index()];
        *count = count.saturating_sub(1);
        *count == 0
    }
}
