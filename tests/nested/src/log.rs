//! What the machine's console and the emulator said.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Most bytes that are kept.
const KEPT_BYTES: usize = 256 << 10;

/// The last of what was said.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<VecDeque<u8>>>);

impl Log {
    /// Collects what can be read, on a thread of its own, to its end.
    pub fn collect(&self, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        let log = self.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = from.read(&mut buffer) {
                log.add(&buffer[..bytes]);
            }
        })
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..excess);
    }

    /// The last lines, without what terminals interpret.
    pub fn tail(&self, lines: usize) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let printable = |c: &char| *c == '\n' || *c == '\t' || !c.is_control();
        let text: String = String::from_utf8_lossy(&bytes)
            .chars()
            .filter(printable)
            .collect();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_what_came_last_without_escapes() {
        let log = Log::default();
        log.collect(&b"first\r\nsecond\x1b[2J\r\nthird\n"[..])
            .join()
            .unwrap();
        assert_eq!(log.tail(2), "second[2J\nthird");
        assert_eq!(log.tail(9).lines().count(), 3);
    }

    #[test]
    fn old_text_makes_way() {
        let log = Log::default();
        for _ in 0..KEPT_BYTES {
            log.add(b"ab");
        }
        assert_eq!(log.tail(1).len(), KEPT_BYTES);
    }
}
