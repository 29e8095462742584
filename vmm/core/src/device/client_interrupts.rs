//! Interrupts of the function's clients: one pending bit each, and how the guest hears of it.

use std::sync::Arc;

use causeway_mediator::Client;
use parking_lot::Mutex;

use crate::interrupts::LineInterrupt;
use crate::pci::MsixTable;

/// Interrupts of the Causeway function's clients: whether each is pending, and the vectors and the
/// pin by which the guest gets them if it has an interrupt controller.
///
/// Each interrupt raises the MSI-X vector of its client. The pin is asserted while an interrupt of
/// any client is pending, unless configuration space forbids it. Lock order: the lock of this
/// state, then those of table and line.
#[derive(Default)]
pub struct ClientInterrupts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A set of bits of [`Client::bit`].
    pending: u64,
    pin_allowed: bool,
    table: Option<Arc<MsixTable>>,
    line: Option<LineInterrupt>,
}

debug_by_name!(ClientInterrupts);

impl ClientInterrupts {
    /// Connects the function's MSI-X vectors and its interrupt pin. Interrupts that were raised
    /// before stay pending until then.
    pub fn connect(&self, table: Arc<MsixTable>, line: Option<LineInterrupt>) {
        let mut state = self.state.lock();
        state.table = Some(table);
        state.line = line;
        state.drive();
    }

    /// Sets whether configuration space allows the interrupt pin to be asserted.
    pub fn allow_pin(&self, allowed: bool) {
        let mut state = self.state.lock();
        state.pin_allowed = allowed;
        state.drive();
    }

    /// Makes the interrupt of `client` pending, and raises the client's vector and the pin.
    pub fn raise(&self, client: Client) {
        let mut state = self.state.lock();
        state.pending |= client.bit();
        if let (Some(table), Ok(vector)) = (&state.table, u16::try_from(client.number())) {
            table.raise(vector);
        }
        state.drive();
    }

    /// Returns whether the interrupt of `client` is pending.
    pub fn is_pending(&self, client: Client) -> bool {
        self.state.lock().pending & client.bit() != 0
    }

    /// Returns whether the interrupt of any client is pending.
    pub fn any_pending(&self) -> bool {
        self.state.lock().pending != 0
    }

    /// Ends the interrupt of `client`: it is no longer pending.
    pub fn acknowledge(&self, client: Client) {
        let mut state = self.state.lock();
        state.pending &= !client.bit();
        state.drive();
    }

    /// Ends the interrupts of all clients, as a reset of the device does, including those that were
    /// raised while their vectors were masked.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.pending = 0;
        if let Some(table) = &state.table {
            table.clear_pending();
        }
        state.drive();
    }
}

impl State {
    fn drive(&self) {
        if let Some(line) = &self.line {
            line.set(self.pin_allowed && self.pending != 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupts::{LINE_FIRST, fake::FakeChips};

    fn client(number: u32) -> Client {
        Client::new(number).unwrap()
    }

    #[test]
    fn the_pin_is_asserted_while_any_is_pending_and_the_guest_allows_it() {
        let chips = FakeChips::default();
        let controller = chips.controller();
        let interrupts = ClientInterrupts::default();
        let table = Arc::new(MsixTable::silent(64));
        interrupts.raise(client(3));
        interrupts.connect(table, Some(controller.line(LINE_FIRST).unwrap()));
        let asserted = || chips.books().asserted.contains(&LINE_FIRST);
        assert!(!asserted(), "not allowed");
        interrupts.allow_pin(true);
        assert!(asserted());
        interrupts.raise(client(63));
        interrupts.acknowledge(client(3));
        assert!(asserted() && !interrupts.is_pending(client(3)));
        interrupts.allow_pin(false);
        assert!(!asserted() && interrupts.any_pending());
        interrupts.allow_pin(true);
        interrupts.clear();
        assert!(!asserted() && !interrupts.any_pending());
    }
}
