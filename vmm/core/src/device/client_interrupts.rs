//! Interrupts of the function's clients: one pending bit each, and how the guest hears of it.

use std::sync::Arc;

use causeway_mediator::Client;
use parking_lot::Mutex;

use crate::interrupts::LineInterrupt;
use crate::pci::MsixTable;

/// The interrupts of the Causeway function: one for each client of the guest. Each is pending from
/// [`Self::raise`] to [`Self::acknowledge`].
///
/// If the guest has an interrupt controller and has enabled MSI-X, an interrupt also raises its
/// client's MSI-X vector. If it has an interrupt controller but has not enabled MSI-X, the
/// function's interrupt pin is asserted while any interrupt is pending, unless the guest has
/// disabled the pin in configuration space.
///
/// Lock order: this structure's own lock, then those of the MSI-X table and of the interrupt line.
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
    /// Connects the function's MSI-X vectors (`table`) and its interrupt pin (`line`; `None` in a
    /// VM without an interrupt controller). Asserts the pin at once if an interrupt is pending and
    /// [`Self::allow_pin`] has allowed the pin.
    pub fn connect(&self, table: Arc<MsixTable>, line: Option<LineInterrupt>) {
        let mut state = self.state.lock();
        state.table = Some(table);
        state.line = line;
        state.drive();
    }

    /// Sets whether the function may assert its interrupt pin. The caller must pass false while the
    /// guest has disabled the pin in configuration space or uses MSI-X.
    pub fn allow_pin(&self, allowed: bool) {
        let mut state = self.state.lock();
        state.pin_allowed = allowed;
        state.drive();
    }

    /// Makes the interrupt of `client` pending. Raises the client's MSI-X vector if the guest has
    /// enabled MSI-X, and asserts the interrupt pin if [`Self::allow_pin`] has allowed it.
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

    /// Ends the interrupts of all clients, as a reset of the device does. MSI-X vectors that were
    /// raised while they were masked are no longer pending either.
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
