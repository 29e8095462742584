//! Text that kernels print (`printf` in CUDA C++).
//!
//! The driver writes it to the standard output of its process when a stream is synchronized. In a
//! process that has one session, a pipe takes the place of standard output. A thread empties it, so
//! that the driver never waits, and keeps a bounded amount of text until the guest takes it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of text that are kept. When there are more, the oldest are lost, as in CUDA.
pub(crate) const KEPT_BYTES: usize = 1 << 20;

/// What kernels of this process have printed.
pub(crate) struct Output {
    /// The end of the pipe that is read, without waiting, and what was read.
    text: Mutex<(PipeReader, Text)>,
    /// The flags of the address spaces that exist; each is set when its space ends.
    spaces: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Output {
    /// Puts a pipe in the place of standard output, for as long as the process lives.
    pub(crate) fn capture() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        let arrivals = reader.try_clone()?;
        rustix::stdio::dup2_stdout(&writer)?;
        let output = Arc::new(Self {
            text: Mutex::new((reader, Text::default())),
            spaces: Mutex::default(),
        });
        let kept = Arc::clone(&output);
        std::thread::Builder::new()
            .name("printf".to_owned())
            .spawn(move || kept.keep_empty(&arrivals))?;
        Ok(output)
    }

    /// Reads whenever there is something, for as long as standard output is open.
    fn keep_empty(&self, arrivals: &PipeReader) {
        loop {
            let mut arrived = [PollFd::new(arrivals, PollFlags::IN)];
            // After a signal or an error, there may be something or not.
            let _ = poll(&mut arrived, None);
            let (reader, text) = &mut *self.text.lock();
            if !text.read(reader) {
                return;
            }
        }
    }

    /// Notes that an address space begins, whose end sets `stop`. If no other is in use, the text
    /// belongs to a session before a reset, and is dropped.
    pub(crate) fn begin_space(&self, stop: &Arc<AtomicBool>) {
        let mut spaces = self.spaces.lock();
        if spaces.iter().all(|stop| stop.load(Ordering::SeqCst)) {
            self.forget();
        }
        spaces.push(Arc::clone(stop));
    }

    /// Notes that the work of the address space with the flag `stop` is done. Text of the last one
    /// is dropped.
    pub(crate) fn end_space(&self, stop: &Arc<AtomicBool>) {
        let mut spaces = self.spaces.lock();
        spaces.retain(|known| !Arc::ptr_eq(known, stop));
        if spaces.is_empty() {
            self.forget();
        }
    }

    fn forget(&self) {
        let (reader, text) = &mut *self.text.lock();
        text.read(reader);
        text.0 = VecDeque::new();
    }

    /// Takes the oldest `bytes` bytes of what was written so far, or all if there are fewer.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let (reader, text) = &mut *self.text.lock();
        text.read(reader);
        text.take(bytes)
    }
}

/// Text that is kept.
#[derive(Default)]
struct Text(VecDeque<u8>);

impl Text {
    /// Reads until the pipe is empty. Returns whether it may get more.
    fn read(&mut self, mut pipe: impl Read) -> bool {
        let mut part = [0; 4096];
        loop {
            match pipe.read(&mut part) {
                Ok(0) => return false,
                Ok(count) => self.add(&part[..count]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn add(&mut self, part: &[u8]) {
        let too_many = (self.0.len() + part.len()).saturating_sub(KEPT_BYTES);
        self.0.drain(..too_many.min(self.0.len()));
        self.0.extend(part);
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.0.drain(..bytes.min(self.0.len())).collect();
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_text_is_kept_and_the_oldest_taken_first() {
        let mut text = Text::default();
        assert!(!text.read(&b"first second"[..]), "the end");
        assert_eq!(text.take(6), b"first ");
        assert_eq!(text.take(100), b"second");
        assert_eq!(text.take(100), b"");
        let long: Vec<u8> = (0..KEPT_BYTES + 10_000)
            .map(|at| (at / 100) as u8)
            .collect();
        text.read(&long[..]);
        assert_eq!(text.0.len(), KEPT_BYTES);
        assert_eq!(text.take(usize::MAX), long[10_000..]);
        assert_eq!(text.0.capacity(), 0);
    }
}
