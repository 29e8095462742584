//! Text that kernels print, until the host takes it.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Bytes of text that are kept: as many as CUDA keeps by default.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of memory for the text and for the length of each call, of which there is at most one per
/// byte of text.
pub(crate) const OUTPUT_BYTES: u64 = (BYTES_MAX + BYTES_MAX * size_of::<u16>()) as u64;

/// What the kernels of an address space have printed. When it is full, the texts of the oldest
/// calls are lost, as in CUDA.
#[derive(Debug, Default)]
pub(crate) struct Output {
    text: Mutex<Text>,
}

#[derive(Debug, Default)]
struct Text {
    bytes: VecDeque<u8>,
    /// Bytes of each call, oldest first; none is 0. Their sum is the number of bytes.
    calls: VecDeque<u16>,
}

impl Output {
    /// Adds the text of one call. Bytes behind the first 65,535 are left off.
    pub(crate) fn add(&self, text: &[u8]) {
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        if length == 0 {
            return;
        }
        let mut kept = self.text.lock();
        kept.cut(BYTES_MAX - usize::from(length));
        kept.reserve(usize::from(length));
        kept.bytes.extend(&text[..usize::from(length)]);
        kept.calls.push_back(length);
    }

    /// Leaves the texts of the last calls, which have together at most `bytes` bytes, and gives
    /// memory back.
    pub(crate) fn shrink(&self, bytes: usize) {
        let mut kept = self.text.lock();
        kept.cut(bytes);
        kept.bytes.shrink_to_fit();
        kept.calls.shrink_to_fit();
    }

    /// Takes the oldest `max_bytes` bytes, or all if there are fewer.
    pub(crate) fn take(&self, max_bytes: usize) -> Vec<u8> {
        let mut kept = self.text.lock();
        let count = kept.bytes.len().min(max_bytes);
        let mut left = count;
        while left != 0
            && let Some(oldest) = kept.calls.front_mut()
        {
            let part = usize::from(*oldest).min(left);
            *oldest -= part as u16;
            if *oldest == 0 {
                kept.calls.pop_front();
            }
            left -= part;
        }
        let taken = kept.bytes.drain(..count).collect();
        if kept.bytes.is_empty() {
            // Address spaces whose kernels have printed once keep no memory for it.
            *kept = Text::default();
        }
        taken
    }
}

impl Text {
    /// Drops the texts of the oldest calls until at most `bytes` bytes are left.
    fn cut(&mut self, bytes: usize) {
        while self.bytes.len() > bytes {
            let Some(oldest) = self.calls.pop_front() else {
                break;
            };
            self.bytes.drain(..usize::from(oldest));
        }
    }

    /// Makes room for one more call of `length` bytes, by powers of two: for [`BYTES_MAX`] at most.
    fn reserve(&mut self, length: usize) {
        let wanted = self.bytes.len() + length;
        if wanted > self.bytes.capacity() {
            let more = wanted.next_power_of_two() - self.bytes.len();
            self.bytes.reserve_exact(more);
        }
        let calls = self.calls.len();
        if calls == self.calls.capacity() {
            self.calls
                .reserve_exact((calls + 1).next_power_of_two() - calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_taken_in_order_and_in_parts() {
        let output = Output::default();
        output.add(b"");
        output.add(b"one");
        output.add(b"two");
        assert_eq!(output.take(4), b"onet");
        output.add(b"three");
        assert_eq!(output.take(usize::MAX), b"wothree");
        assert_eq!(output.take(9), b"");
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let output = Output::default();
        let bytes = || {
            let kept = output.text.lock();
            (kept.bytes.capacity() + kept.calls.capacity() * size_of::<u16>()) as u64
        };
        assert_eq!(bytes(), 0);
        for _ in 0..BYTES_MAX + 9 {
            output.add(b"x");
        }
        assert_eq!(bytes(), OUTPUT_BYTES);
        output.take(BYTES_MAX - 1);
        assert_ne!(bytes(), 0, "a byte is left");
        output.take(1);
        assert_eq!(bytes(), 0);
        for _ in 0..BYTES_MAX / 700 * 2 {
            output.add(&[b'x'; 700]);
            assert!(bytes() <= OUTPUT_BYTES);
        }
        output.shrink(1000);
        assert_eq!(bytes(), 702);
        assert_eq!(output.take(usize::MAX).len(), 700);
    }

    #[test]
    fn the_oldest_calls_are_lost_as_a_whole() {
        let output = Output::default();
        let line = |n: usize| format!("{n:09}\n");
        for n in 0..BYTES_MAX / 10 + 1 {
            output.add(line(n).as_bytes());
        }
        let kept = output.take(usize::MAX);
        assert_eq!(kept.len(), BYTES_MAX / 10 * 10);
        assert!(kept.starts_with(line(1).as_bytes()));
        // A call of which a part was taken loses only the rest.
        output.add(&[b'a'; 1000]);
        output.take(400);
        for _ in 0..BYTES_MAX / 1024 {
            output.add(&[b'b'; 1024]);
        }
        let kept = output.take(usize::MAX);
        assert_eq!((kept.len(), kept[0]), (BYTES_MAX, b'b'));
    }
}
