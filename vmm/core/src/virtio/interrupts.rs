//! Interrupts of a virtio function: messages if the driver has enabled MSI-X, else the pin.

use std::io;
use std::sync::Arc;

use super::registers::{NO_VECTOR, interrupt_status};
use crate::interrupts::{InterruptController, LineInterrupt};
use crate::pci::MsixTable;
use parking_lot::Mutex;
use vmm_sys_util::eventfd::EventFd;

/// The interrupts of one virtio function: one for each queue, and one for changes of the device's
/// configuration.
///
/// Lock order: this structure's own lock, then those of the MSI-X table and of the interrupt line.
pub struct Interrupts {
    table: MsixTable,
    line: LineInterrupt,
    state: Mutex<State>,
}

/// The reason of an interrupt. Each reason has an MSI-X vector of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The device's configuration or status has changed.
    Configuration,
    /// Requests of the queue with this number are done.
    Queue(u16),
}

struct State {
    /// Interrupt status: the causes for which the pin is asserted.
    status: u8,
    /// The command register lets the function assert its pin.
    pin_enabled: bool,
    /// Of changes of configuration, and then of each queue.
    vectors: Vec<u16>,
}

impl State {
    /// As after a reset of a device with so many vectors. The command register is not the device's.
    fn fresh(pin_enabled: bool, vectors: usize) -> Self {
        Self {
            status: 0,
            pin_enabled,
            vectors: vec![NO_VECTOR; vectors],
        }
    }
}

impl Source {
    /// Index among all vectors of the function.
    fn index(self) -> usize {
        match self {
            Self::Configuration => 0,
            Self::Queue(queue) => 1 + usize::from(queue),
        }
    }

    /// Bit of interrupt status.
    fn status(self) -> u8 {
        match self {
            Self::Configuration => interrupt_status::CONFIGURATION,
            Self::Queue(_) => interrupt_status::QUEUE,
        }
    }
}

impl Interrupts {
    /// Returns the interrupts of a function that has `queues` queues and whose interrupt pin is
    /// wired to `line`. The MSI-X vectors are interrupts of `controller`.
    ///
    /// # Errors
    /// `ENOSPC` if the VM has too many message interrupts, `EMFILE` or `ENFILE` if no descriptor is
    /// left for an eventfd.
    pub fn new(
        controller: &Arc<InterruptController>,
        line: LineInterrupt,
        queues: u16,
    ) -> io::Result<Self> {
        Ok(Self {
            table: MsixTable::new(vectors(queues), controller)?,
            line,
            state: Mutex::new(State::fresh(true, vectors(queues).into())),
        })
    }

    /// Returns the function's MSI-X table.
    pub fn table(&self) -> &MsixTable {
        &self.table
    }

    /// Interrupts the guest because of `source`: by an MSI-X vector if the guest has enabled MSI-X,
    /// else by the pin.
    pub fn raise(&self, source: Source) {
        let mut state = self.state.lock();
        if self.table.is_enabled() {
            let vector = state.vectors.get(source.index());
            self.table.raise(vector.copied().unwrap_or(NO_VECTOR));
        } else {
            state.status |= source.status();
            self.drive(&state);
        }
    }

    /// Returns a duplicate of the event (an eventfd) that interrupts the guest because of `source`
    /// without this process; `None` if the driver has enabled no MSI-X vector for `source`.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is left.
    pub fn event(&self, source: Source) -> io::Result<Option<EventFd>> {
        let vector = usize::from(self.vector(source));
        if !self.table.is_enabled() {
            return Ok(None);
        }
        let duplicate = |events: &[&EventFd]| events.get(vector).map(|event| event.try_clone());
        self.table.with_events(duplicate).transpose()
    }

    /// Returns the value of the interrupt status register and clears the register, which ends the
    /// interrupt on the pin.
    pub fn take_status(&self) -> u8 {
        let mut state = self.state.lock();
        let status = std::mem::take(&mut state.status);
        self.drive(&state);
        status
    }

    /// Returns whether the function has an interrupt for its pin, even if the guest has disabled
    /// the pin.
    pub fn is_pending(&self) -> bool {
        self.state.lock().status != 0
    }

    /// Applies what the guest has stored to configuration space. `msix_control` is the message
    /// control register of MSI-X; `pin_enabled` says whether the function may assert its pin.
    pub fn configure(&self, msix_control: u16, pin_enabled: bool) {
        let mut state = self.state.lock();
        self.table.set_control(msix_control);
        state.pin_enabled = pin_enabled;
        self.drive(&state);
    }

    /// Returns the number of the MSI-X vector that the driver has chosen for `source`. Returns
    /// [`NO_VECTOR`] if the driver has chosen none, or the device has no such queue.
    pub fn vector(&self, source: Source) -> u16 {
        let state = self.state.lock();
        let vector = state.vectors.get(source.index());
        vector.copied().unwrap_or(NO_VECTOR)
    }

    /// Makes `vector` the MSI-X vector for `source`, or [`NO_VECTOR`] if the MSI-X table has no
    /// vector of this number. Does nothing if the device has no such queue.
    pub fn set_vector(&self, source: Source, vector: u16) {
        let mut state = self.state.lock();
        let exists = usize::from(vector) < state.vectors.len();
        if let Some(kept) = state.vectors.get_mut(source.index()) {
            *kept = if exists { vector } else { NO_VECTOR };
        }
    }

    /// Resets the interrupts as a reset of the device does: clears the interrupt status register,
    /// the driver's choice of vectors, and pending interrupts. What the guest has stored to
    /// configuration space stays.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        *state = State::fresh(state.pin_enabled, state.vectors.len());
        self.table.clear_pending();
        self.drive(&state);
    }

    fn drive(&self, state: &State) {
        let pin = state.pin_enabled && !self.table.is_enabled();
        self.line.set(state.status != 0 && pin);
    }
}

/// Returns the number of MSI-X vectors of a function with `queues` queues: one for each queue, and
/// one for changes of the device's configuration.
pub const fn vectors(queues: u16) -> u16 {
    queues + 1
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
        (Interrupts::new(&controller, line, 2).unwrap(), chips)
    }

    fn pending(interrupts: &Interrupts) -> u8 {
        let mut bytes = [0; 8];
        let _ = interrupts.table().read_pending(0, &mut bytes);
        bytes[0]
    }

    #[test]
    fn without_messages_the_pin_is_asserted_until_the_status_is_read() {
        let (interrupts, chips) = interrupts();
        interrupts.raise(Source::Queue(0));
        interrupts.raise(Source::Configuration);
        assert_eq!(chips.books().asserted, [LINE_FIRST + 1]);
        assert_eq!(interrupts.take_status(), 3);
        assert!(chips.books().asserted.is_empty() && !interrupts.is_pending());
        assert_eq!(interrupts.take_status(), 0);
    }

    #[test]
    fn a_disabled_pin_follows_when_it_is_enabled_again() {
        let (interrupts, chips) = interrupts();
        interrupts.configure(0, false);
        interrupts.raise(Source::Queue(0));
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
        interrupts.raise(Source::Queue(0));
        assert_eq!(pending(&interrupts), 0, "no vector is assigned");
        interrupts.set_vector(Source::Queue(0), 1);
        interrupts.raise(Source::Queue(0));
        assert_eq!(pending(&interrupts), 0b10);
        interrupts.set_vector(Source::Configuration, 0);
        interrupts.raise(Source::Configuration);
        assert_eq!(pending(&interrupts), 0b11);
        assert!(chips.books().asserted.is_empty() && !interrupts.is_pending());
        interrupts.reset();
        assert_eq!(pending(&interrupts), 0);
        assert_eq!(interrupts.vector(Source::Queue(0)), NO_VECTOR);
    }

    #[test]
    fn a_vector_that_is_not_there_reads_back_as_none() {
        let (interrupts, _) = interrupts();
        for (vector, kept) in [(0, 0), (2, 2), (3, NO_VECTOR), (NO_VECTOR, NO_VECTOR)] {
            interrupts.set_vector(Source::Configuration, vector);
            interrupts.set_vector(Source::Queue(1), vector);
            assert_eq!(interrupts.vector(Source::Configuration), kept);
            assert_eq!(interrupts.vector(Source::Queue(1)), kept);
        }
        interrupts.set_vector(Source::Queue(2), 1);
        assert_eq!(
            interrupts.vector(Source::Queue(2)),
            NO_VECTOR,
            "no such queue"
        );
        assert_eq!(
            interrupts.vector(Source::Queue(0)),
            NO_VECTOR,
            "of another queue"
        );
    }
}
