//! Filters typed bytes: separates keys for this program from input for the guest.

/// Ctrl-A: the next byte may be a command to this program.
const PREFIX: u8 = 0x01;

/// What a typed byte means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Up to two bytes that the guest receives.
    Typed([Option<u8>; 2]),
    /// The user typed the keys that end the run.
    End,
}

/// A filter of typed bytes that remembers whether the last byte was Ctrl-A.
#[derive(Debug, Default)]
pub struct Escape {
    open: bool,
}

impl Escape {
    /// Takes the next typed byte and returns what it means.
    pub fn feed(&mut self, byte: u8) -> Key {
        let was_open = std::mem::take(&mut self.open);
        match (was_open, byte) {
            (false, PREFIX) => {
                self.open = true;
                Key::Typed([None, None])
            }
            (true, b'x' | b'X') => Key::End,
            (true, PREFIX) | (false, _) => Key::Typed([Some(byte), None]),
            (true, _) => Key::Typed([Some(PREFIX), Some(byte)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut escape = Escape::default();
        let mut guest = Vec::new();
        for byte in bytes {
            match escape.feed(*byte) {
                Key::Typed(bytes) => guest.extend(bytes.into_iter().flatten()),
                Key::End => return (guest, true),
            }
        }
        (guest, false)
    }

    #[test]
    fn only_the_escape_is_kept_from_the_guest() {
        assert_eq!(typed(b"ls\r\x03"), (b"ls\r\x03".to_vec(), false));
        assert_eq!(typed(b"a\x01xb"), (b"a".to_vec(), true));
        assert_eq!(typed(b"\x01\x01x"), (b"\x01x".to_vec(), false));
        assert_eq!(typed(b"\x01k"), (b"\x01k".to_vec(), false));
        assert_eq!(typed(b"\x01"), (Vec::new(), false));
    }
}
