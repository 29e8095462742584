//! How a virtio function tells its driver: by message if the driver enabled MSI-X, by its pin if not.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::registers::{NO_VECTOR, interrupt_status};
use crate::interrupts::{InterruptController, LineInterrupt};
use crate::pci::MsixTable;

/// Vectors of a function: changes of configuration, and its queue.
pub const VECTORS: u16 = 2;

/// The interrupts of one function.
///
/// Lock order: its own, then those of the table and of the line.
pub struct Interrupts {
    table: MsixTable,
    line: LineInterrupt,
    state: Mutex<State>,
}

struct State {
    /// Interrupt status: what is to be told by pin.
    status: u8,
    /// The command register lets the function assert its pin.
    pin_enabled: bool,
    configuration_vector: u16,
    queue_vector: u16,
}

impl State {
    /// As after a reset of the device. The command register is not the device's.
    fn fresh(pin_enabled: bool) -> Self {
        Self {
            status: 0,
            pin_enabled,
            configuration_vector: NO_VECTOR,
            queue_vector: NO_VECTOR,
        }
    }
}

impl Interrupts {
    /// Interrupts of the function whose pin is wired to `line`.
    ///
    /// # Errors
    /// As [`InterruptController::message`].
    pub fn new(controller: &Arc<InterruptController>, line: LineInterrupt) -> io::Result<Self> {
        Ok(Self {
            table: MsixTable::new(VECTORS, controller)?,
            line,
            state: Mutex::new(State::fresh(true)),
        })
    }

    /// The MSI-X table.
    pub fn table(&self) -> &MsixTable {
        &self.table
    }

    /// Tells the driver that the queue has requests that were given back.
    pub fn raise_queue(&self) {
        let state = self.state();
        self.raise(state, interrupt_status::QUEUE);
    }

    /// Tells the driver that configuration or device status changed.
    pub fn raise_configuration(&self) {
        let state = self.state();
        self.raise(state, interrupt_status::CONFIGURATION);
    }

    fn raise(&self, mut state: MutexGuard<'_, State>, bit: u8) {
        if self.table.is_enabled() {
            self.table.raise(match bit {
                interrupt_status::QUEUE => state.queue_vector,
                _ => state.configuration_vector,
            });
        } else {
            state.status |= bit;
            self.drive(&state);
        }
    }

    /// Reads interrupt status, which clears it and takes the pin back.
    pub fn take_status(&self) -> u8 {
        let mut state = self.state();
        let status = std::mem::take(&mut state.status);
        self.drive(&state);
        status
    }

    /// Whether the function has something to tell by pin.
    pub fn is_pending(&self) -> bool {
        self.state().status != 0
    }

    /// Takes over what was stored to configuration space: message control, and whether the pin may be asserted.
    pub fn configure(&self, msix_control: u16, pin_enabled: bool) {
        let mut state = self.state();
        self.table.set_control(msix_control);
        state.pin_enabled = pin_enabled;
        self.drive(&state);
    }

    /// Vector of changes of configuration.
    pub fn configuration_vector(&self) -> u16 {
        self.state().configuration_vector
    }

    /// Vector of the queue.
    pub fn queue_vector(&self) -> u16 {
        self.state().queue_vector
    }

    /// Sets the vector of changes of configuration. One that is not there reads back as none.
    pub fn set_configuration_vector(&self, vector: u16) {
        self.state().configuration_vector = existing(vector);
    }

    /// Sets the vector of the queue, likewise.
    pub fn set_queue_vector(&self, vector: u16) {
        self.state().queue_vector = existing(vector);
    }

    /// Forgets everything but what configuration space says.
    pub fn reset(&self) {
        let mut state = self.state();
        *state = State::fresh(state.pin_enabled);
        self.table.clear_pending();
        self.drive(&state);
    }

    fn drive(&self, state: &State) {
        let messages = self.table.is_enabled();
        self.line
            .set(state.status != 0 && state.pin_enabled && !messages);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn existing(vector: u16) -> u16 {
    if vector < VECTORS { vector } else { NO_VECTOR }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupts::fake::FakeChips;
    use crate::interrupts::{LINE_FIRST, LINES};

    const ENABLE: u16 = 1 << 15;

    fn interrupts() -> (Interrupts, FakeChips) {
        let chips = FakeChips::default();
        let controller = chips.controller();
        const { assert!(LINES > 1) };
        let line = controller.line(LINE_FIRST + 1).unwrap();
        (Interrupts::new(&controller, line).unwrap(), chips)
    }

    fn pending(interrupts: &Interrupts) -> u8 {
        let mut bytes = [0; 8];
        let _ = interrupts.table().read_pending(0, &mut bytes);
        bytes[0]
    }

    #[test]
    fn without_messages_the_pin_is_asserted_until_the_status_is_read() {
        let (interrupts, chips) = interrupts();
        interrupts.raise_queue();
        interrupts.raise_configuration();
        assert_eq!(chips.books().asserted, [LINE_FIRST + 1]);
        assert_eq!(interrupts.take_status(), 3);
        assert!(chips.books().asserted.is_empty() && !interrupts.is_pending());
        assert_eq!(interrupts.take_status(), 0);
    }

    #[test]
    fn a_disabled_pin_follows_when_it_is_enabled_again() {
        let (interrupts, chips) = interrupts();
        interrupts.configure(0, false);
        interrupts.raise_queue();
        assert!(chips.books().asserted.is_empty() && interrupts.is_pending());
        interrupts.configure(0, true);
        assert_eq!(chips.books().asserted, [LINE_FIRST + 1]);
        interrupts.reset();
        assert!(chips.books().asserted.is_empty() && !interrupts.is_pending());
    }

    #[test]
    fn with_messages_the_vectors_are_raised_and_the_pin_is_not() {
        let (interrupts, chips) = interrupts();
        interrupts.configure(ENABLE, true);
        interrupts.raise_queue();
        assert_eq!(pending(&interrupts), 0, "no vector is assigned");
        interrupts.set_queue_vector(1);
        interrupts.raise_queue();
        assert_eq!(pending(&interrupts), 0b10);
        interrupts.set_configuration_vector(0);
        interrupts.raise_configuration();
        assert_eq!(pending(&interrupts), 0b11);
        assert!(chips.books().asserted.is_empty() && !interrupts.is_pending());
        interrupts.reset();
        assert_eq!(pending(&interrupts), 0);
        assert_eq!(interrupts.queue_vector(), NO_VECTOR);
    }

    #[test]
    fn a_vector_that_is_not_there_reads_back_as_none() {
        let (interrupts, _) = interrupts();
        for (vector, kept) in [(0, 0), (1, 1), (2, NO_VECTOR), (NO_VECTOR, NO_VECTOR)] {
            interrupts.set_configuration_vector(vector);
            interrupts.set_queue_vector(vector);
            assert_eq!(interrupts.configuration_vector(), kept);
            assert_eq!(interrupts.queue_vector(), kept);
        }
    }
}
