//! MSI-X table and pending bits (PCI Local Bus Specification 3.0, 6.8.2).

use std::io;
use std::sync::Arc;

use crate::bus::{AccessResult, Refusal};
use crate::interrupts::{InterruptController, MessageInterrupt, MsiMessage};
use parking_lot::Mutex;
use vmm_sys_util::eventfd::EventFd;

/// Words of a table entry: address low and high, data, control.
const ENTRY_WORDS: usize = 4;
/// Control word bit 0: the vector is masked; the state after reset.
const CONTROL_MASKED: u32 = 1;
/// Address bits that can be written: messages are aligned to 4 bytes.
const ADDRESS_WRITABLE: u32 = !3;
/// Message control bit 15: the function raises messages, and no pin.
const CONTROL_ENABLE: u16 = 1 << 15;
/// Message control bit 14: all vectors are masked.
const CONTROL_FUNCTION_MASK: u16 = 1 << 14;

/// The MSI-X table and pending bits of a PCI function. Guest software accesses them in aligned 4-
/// and 8-byte words.
///
/// A vector that is raised while it is masked becomes pending, and is delivered when it is
/// unmasked. Lock order: this table's own lock, then those of [`crate::interrupts`].
pub struct MsixTable {
    state: Mutex<State>,
}

struct State {
    words: Vec<u32>,
    /// One for each vector, or none at all.
    interrupts: Vec<MessageInterrupt>,
    /// Message control, as configuration space has it.
    control: u16,
}

debug_by_name!(MsixTable);

impl MsixTable {
    /// Returns a table with `vectors` vectors, for a VM without an interrupt controller. Guest
    /// software can program the vectors and read them back, but raising them does nothing.
    pub fn silent(vectors: u16) -> Self {
        Self::of(vectors, Vec::new())
    }

    /// Returns a table with `vectors` vectors, each of which is an interrupt of `controller`.
    ///
    /// # Errors
    /// `ENOSPC` if the VM has too many message-signalled interrupts, `EMFILE` or `ENFILE` if no
    /// file descriptor is left for an eventfd.
    pub fn new(vectors: u16, controller: &Arc<InterruptController>) -> io::Result<Self> {
        let interrupts = (0..vectors).map(|_| controller.message());
        Ok(Self::of(vectors, interrupts.collect::<Result<_, _>>()?))
    }

    fn of(vectors: u16, interrupts: Vec<MessageInterrupt>) -> Self {
        let words = [0, 0, 0, CONTROL_MASKED].repeat(vectors.into());
        Self {
            state: Mutex::new(State {
                words,
                interrupts,
                control: 0,
            }),
        }
    }

    /// Applies `control`, the value that the guest has stored to the message control register: it
    /// enables or disables MSI-X, and masks or unmasks the function as a whole.
    pub fn set_control(&self, control: u16) {
        let mut state = self.state.lock();
        if state.control != control {
            state.control = control;
            (0..state.interrupts.len()).for_each(|vector| state.route(vector));
        }
    }

    /// Returns whether the guest has enabled MSI-X. If so, the function does not use its interrupt
    /// pin.
    pub fn is_enabled(&self) -> bool {
        self.state.lock().control & CONTROL_ENABLE != 0
    }

    /// Raises vector number `vector`, or marks it pending if it is masked. Does nothing if there is
    /// no such vector, or MSI-X is not enabled.
    pub fn raise(&self, vector: u16) {
        let state = self.state.lock();
        if state.control & CONTROL_ENABLE != 0
            && let Some(interrupt) = state.interrupts.get(usize::from(vector))
        {
            interrupt.trigger();
        }
    }

    /// Clears the pending bits of all vectors, as a reset of the device does.
    pub fn clear_pending(&self) {
        let state = self.state.lock();
        let interrupts = state.interrupts.iter();
        interrupts.for_each(MessageInterrupt::clear_pending);
    }

    /// Calls `f` with one event (an eventfd) for each vector, and returns its result. Signalling an
    /// event raises its vector, so `f` can hand the events to the host's kernel, which then raises
    /// the vectors. A table made by [`Self::silent`] has no events.
    pub fn with_events<R>(&self, f: impl FnOnce(&[&EventFd]) -> R) -> R {
        let state = self.state.lock();
        let events: Vec<_> = state.interrupts.iter().map(|i| i.event()).collect();
        f(&events)
    }

    /// Returns one more than the highest number of a vector that guest software has programmed or
    /// unmasked; zero if there is none.
    pub fn programmed(&self) -> u16 {
        let state = self.state.lock();
        let mut entries = state.words.as_chunks::<ENTRY_WORDS>().0.iter();
        let fresh = [0, 0, 0, CONTROL_MASKED];
        let highest = entries.rposition(|entry| *entry != fresh);
        highest.map_or(0, |vector| vector as u16 + 1)
    }

    /// Carries out the guest's load into `into` at byte `offset` of the MSI-X table. Returns the
    /// name under which an exit by this access is counted, or why the access is refused.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> AccessResult {
        let state = self.state.lock();
        let first = first_word(offset, into.len(), state.words.len())?;
        for (bytes, word) in into.chunks_exact_mut(4).zip(&state.words[first..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Ok("msix_table")
    }

    /// Carries out the guest's store of `from` at byte `offset` of the MSI-X table. Returns the
    /// name under which an exit by this access is counted, or why the access is refused.
    pub fn write(&self, offset: u64, from: &[u8]) -> AccessResult {
        let mut state = self.state.lock();
        let first = first_word(offset, from.len(), state.words.len())?;
        for (i, bytes) in from.chunks_exact(4).enumerate() {
            let writable = match (first + i) % ENTRY_WORDS {
                0 => ADDRESS_WRITABLE,
                3 => CONTROL_MASKED,
                _ => u32::MAX,
            };
            let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            state.words[first + i] = value & writable;
        }
        state.route(first / ENTRY_WORDS);
        Ok("msix_table")
    }

    /// Carries out the guest's load into `into` at byte `offset` of the pending bits of MSI-X.
    /// Returns the name under which an exit by this access is counted, or why the access is
    /// refused.
    pub fn read_pending(&self, offset: u64, into: &mut [u8]) -> AccessResult {
        let state = self.state.lock();
        let vectors = state.words.len() / ENTRY_WORDS;
        let first = first_word(offset, into.len(), vectors.div_ceil(64) * 2)?;
        into.fill(0);
        let bits = into.len() * 8;
        let interrupts = state.interrupts.iter().skip(first * 32).take(bits);
        for (bit, interrupt) in interrupts.enumerate() {
            into[bit / 8] |= u8::from(interrupt.is_pending()) << (bit % 8);
        }
        Ok("msix_pending")
    }
}

impl State {
    /// Sets a vector's interrupt to its entry in the table.
    fn route(&self, vector: usize) {
        let Some(interrupt) = self.interrupts.get(vector) else {
            return;
        };
        if let Err(e) = interrupt.set(self.message(vector)) {
            log::debug!(
                "MSI-X vector {vector} stays masked: the hypervisor refuses its message: {e}"
            );
        }
    }

    /// Returns the message of a vector, unless it is masked.
    fn message(&self, vector: usize) -> Option<MsiMessage> {
        let [low, high, data, control] = *self.words[vector * ENTRY_WORDS..].first_chunk()?;
        let enabled = self.control & (CONTROL_ENABLE | CONTROL_FUNCTION_MASK) == CONTROL_ENABLE;
        (enabled && control & CONTROL_MASKED == 0).then_some(MsiMessage {
            address: u64::from(high) << 32 | u64::from(low),
            data,
        })
    }
}

/// Returns the index of the first 32-bit word of an access that lies within `words` words.
fn first_word(offset: u64, bytes: usize, words: usize) -> Result<usize, Refusal> {
    if !matches!(bytes, 4 | 8) {
        return Err(Refusal::BadSize);
    }
    if !offset.is_multiple_of(bytes as u64) {
        return Err(Refusal::Misaligned);
    }
    let first = usize::try_from(offset / 4).unwrap_or(usize::MAX);
    if first.saturating_add(bytes / 4) > words {
        return Err(Refusal::NoRegister);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupts::fake::FakeChips;

    const VECTORS: u16 = 64;
    const PENDING_BYTES: u64 = 8;

    fn write4(table: &MsixTable, offset: u64, value: u32) {
        assert_eq!(table.write(offset, &value.to_le_bytes()), Ok("msix_table"));
    }

    fn pending(table: &MsixTable) -> u64 {
        let mut bytes = [0; 8];
        assert_eq!(table.read_pending(0, &mut bytes), Ok("msix_pending"));
        u64::from_le_bytes(bytes)
    }

    /// Returns the messages that the hypervisor has, by their data.
    fn routed(chips: &FakeChips) -> Vec<u32> {
        chips.books().messages.values().map(|m| m.data).collect()
    }

    #[test]
    fn a_vector_is_delivered_when_neither_it_nor_the_function_is_masked() {
        let chips = FakeChips::default();
        let table = MsixTable::new(3, &chips.controller()).unwrap();
        for vector in 0..2 {
            write4(&table, vector * 16, 0xfee0_0000);
            write4(&table, vector * 16 + 8, 0x30 + vector as u32);
        }
        write4(&table, 12, 0);
        assert!(routed(&chips).is_empty() && !table.is_enabled());
        table.raise(0);
        assert_eq!(pending(&table), 0, "messages are off");
        table.set_control(CONTROL_ENABLE);
        assert_eq!(routed(&chips), [0x30]);
        table.raise(1);
        table.raise(2);
        table.raise(3);
        assert_eq!(pending(&table), 0b110);
        write4(&table, 16 + 12, 0);
        assert_eq!((routed(&chips), pending(&table)), (vec![0x30, 0x31], 0b100));
        table.set_control(CONTROL_ENABLE | CONTROL_FUNCTION_MASK);
        assert!(routed(&chips).is_empty());
        table.clear_pending();
        assert_eq!(pending(&table), 0);
    }

    #[test]
    fn a_refused_message_leaves_the_vector_masked() {
        let chips = FakeChips::default();
        let table = MsixTable::new(1, &chips.controller()).unwrap();
        table.set_control(CONTROL_ENABLE);
        chips.books().failure = Some(libc::EINVAL);
        write4(&table, 12, 0);
        table.raise(0);
        assert_eq!((routed(&chips).len(), pending(&table)), (0, 1));
        write4(&table, 8, 0x44);
        assert_eq!((routed(&chips), pending(&table)), (vec![0x44], 0));
    }

    #[test]
    fn vectors_are_programmed_up_to_the_highest_that_was_touched() {
        let table = MsixTable::new(3, &FakeChips::default().controller()).unwrap();
        assert_eq!(
            (table.programmed(), table.with_events(|events| events.len())),
            (0, 3)
        );
        write4(&table, 16 + 8, 1);
        assert_eq!(table.programmed(), 2);
        write4(&table, 32 + 12, 0);
        assert_eq!(table.programmed(), 3);
    }

    fn read4(table: &MsixTable, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        assert_eq!(table.read(offset, &mut bytes), Ok("msix_table"));
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn vectors_start_masked_and_hold_what_is_programmed() {
        let table = MsixTable::silent(VECTORS);
        let last = u64::from(VECTORS - 1) * 16;
        assert_eq!(read4(&table, last + 12), CONTROL_MASKED);
        let message = 0x0000_0001_fee0_1003u64.to_le_bytes();
        assert_eq!(table.write(last, &message), Ok("msix_table"));
        assert_eq!(table.write(last + 8, &[1, 2, 3, 4]), Ok("msix_table"));
        assert_eq!(
            table.write(last + 12, &[0xfe, 0xff, 0xff, 0xff]),
            Ok("msix_table")
        );
        assert_eq!(
            read4(&table, last),
            0xfee0_1000,
            "address bits 1:0 are zero"
        );
        assert_eq!(read4(&table, last + 4), 1);
        assert_eq!(read4(&table, last + 8), 0x0403_0201);
        assert_eq!(
            read4(&table, last + 12),
            0,
            "reserved control bits are zero"
        );
        assert_eq!(read4(&table, 12), CONTROL_MASKED);
    }

    #[test]
    fn other_widths_alignments_and_offsets_are_refused() {
        let table = MsixTable::silent(VECTORS);
        let end = u64::from(VECTORS) * 16;
        for (offset, bytes, refusal) in [
            (0, 1, Refusal::BadSize),
            (0, 2, Refusal::BadSize),
            (2, 4, Refusal::Misaligned),
            (4, 8, Refusal::Misaligned),
            (end, 4, Refusal::NoRegister),
            (end, 8, Refusal::NoRegister),
        ] {
            let mut data = vec![0; bytes];
            assert_eq!(table.read(offset, &mut data), Err(refusal), "{offset:#x}");
            assert_eq!(table.write(offset, &data), Err(refusal), "{offset:#x}");
        }
    }

    #[test]
    fn nothing_is_pending_without_interrupts() {
        let table = MsixTable::silent(VECTORS);
        table.set_control(CONTROL_ENABLE);
        table.raise(0);
        assert_eq!(pending(&table), 0);
        for (offset, size) in [(PENDING_BYTES, 4), (0, 2), (2, 4)] {
            assert!(table.read_pending(offset, &mut [0; 8][..size]).is_err());
        }
    }
}
