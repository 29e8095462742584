//! The text and the answer of marks, which a guest makes by ports alone.

use causeway_testdev_records::{MARK_DONE, MARK_REFUSED, TEXT_BYTES, Totals};

/// What one guest has stored for its next mark, and what became of its last one.
#[derive(Debug)]
pub struct MarkState {
    text: MarkText,
    answer: u32,
}

impl Default for MarkState {
    fn default() -> Self {
        Self {
            text: MarkText::default(),
            answer: MARK_DONE,
        }
    }
}

impl MarkState {
    /// Adds four bytes to the text. Bytes for which there is no room are dropped.
    pub fn add(&mut self, word: u32) {
        let MarkText { room, used } = &mut self.text;
        for byte in word.to_le_bytes() {
            if let Some(place) = room.get_mut(*used) {
                *place = byte;
                *used += 1;
            }
        }
    }

    /// Returns the text for a mark, and begins a new one.
    pub fn take_text(&mut self) -> MarkText {
        std::mem::take(&mut self.text)
    }

    /// Records whether the device has acted on the last mark.
    pub fn set_answer(&mut self, is_done: bool) {
        self.answer = if is_done { MARK_DONE } else { MARK_REFUSED };
    }

    /// Returns what a load from the port of marks returns.
    pub fn answer(&self) -> u32 {
        self.answer
    }
}

/// The text of a mark.
#[derive(Clone, Copy, Debug)]
pub struct MarkText {
    room: [u8; TEXT_BYTES],
    used: usize,
}

impl Default for MarkText {
    fn default() -> Self {
        Self {
            room: [0; TEXT_BYTES],
            used: 0,
        }
    }
}

impl MarkText {
    /// Returns the text as a name, which ends at its first zero byte. Control characters are
    /// replaced.
    pub fn name(&self) -> String {
        let text = &self.room[..self.used];
        let end = text.iter().position(|byte| *byte == 0);
        causeway_vmm::console::printable(&text[..end.unwrap_or(text.len())])
    }

    /// Returns the text as the totals of a phase. Numbers that are missing are 0.
    pub fn totals(&self) -> Totals {
        let mut numbers = [0; 3];
        for (number, bytes) in numbers.iter_mut().zip(self.room.chunks_exact(8)) {
            let mut raw = [0; 8];
            raw.copy_from_slice(bytes);
            *number = u64::from_le_bytes(raw);
        }
        let [operations, bytes, doorbells] = numbers;
        Totals {
            operations,
            bytes,
            doorbells,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_its_first_zero_and_where_the_room_does() {
        let mut state = MarkState::default();
        state.add(u32::from_le_bytes(*b"load"));
        state.add(u32::from_le_bytes(*b"s\n\0x"));
        let name = state.take_text().name();
        assert!(
            name.starts_with("loads") && !name.contains(['\n', 'x']),
            "{name:?}"
        );
        assert_eq!(state.take_text().name(), "", "it is used up");
        (0..100).for_each(|_| state.add(u32::from_le_bytes(*b"abcd")));
        assert_eq!(state.take_text().name(), "abcd".repeat(12));
    }
}
