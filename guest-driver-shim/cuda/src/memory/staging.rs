//! Staging memory, through which memory of the process that the GPU does not reach is copied.
//!
//! What goes to the device is put behind what went before, in a circle. What comes from the device
//! comes into two halves in turn, so that one is filled while the other is read.

use std::collections::VecDeque;

use causeway_shim_linux::shim::{Buffer, MemoryKind};

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::ring::Number;

/// Most bytes that are staged as one.
pub(super) const GROUP_BYTES: u64 = 1 << 20;
/// Bytes for copies to the device.
const CIRCLE_BYTES: u64 = 4 * GROUP_BYTES;

/// Staging memory of the process.
pub(super) struct Staging {
    host: u64,
    gpu: u64,
    circle: Circle,
    _memory: Buffer<'static>,
}

/// A place in staging memory, at the CPU's and the GPU's address.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    pub(super) host: u64,
    pub(super) gpu: u64,
    offset: u64,
    bytes: u64,
}

impl Staging {
    /// Allocates staging memory.
    pub(super) fn new(driver: &Driver) -> Answer<Self> {
        let bytes = CIRCLE_BYTES + 2 * GROUP_BYTES;
        let memory = Buffer::new(driver.device, driver.space, bytes, MemoryKind::Host);
        let memory = memory.map_err(|error| {
            log::warn!("cannot allocate staging memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        Ok(Self {
            host: memory.cpu.window().as_ptr().as_ptr() as u64,
            gpu: memory.gpu.address(),
            circle: Circle::new(CIRCLE_BYTES),
            _memory: memory,
        })
    }

    /// Returns a place for `bytes` bytes (at most [`GROUP_BYTES`]) that go to the device, once the
    /// device has read what was there.
    pub(super) fn place(&mut self, driver: &Driver, bytes: u64) -> Answer<Stage> {
        let (offset, number) = self.circle.place(bytes);
        driver.ring.wait(driver, number)?;
        Ok(self.stage(offset, bytes))
    }

    /// Notes which submission reads a place.
    pub(super) fn note(&mut self, stage: Stage, number: Number) {
        self.circle.note(stage.offset, stage.bytes, number);
    }

    /// Returns one of the two halves for what comes from the device.
    pub(super) fn half(&self, index: u64) -> Stage {
        let offset = CIRCLE_BYTES + (index % 2) * GROUP_BYTES;
        self.stage(offset, GROUP_BYTES)
    }

    const fn stage(&self, offset: u64, bytes: u64) -> Stage {
        Stage {
            host: self.host + offset,
            gpu: self.gpu + offset,
            offset,
            bytes,
        }
    }
}

/// Which parts of a circle are in use, and by which submissions.
#[derive(Debug)]
struct Circle {
    bytes: u64,
    head: u64,
    /// Oldest first: first byte, number of bytes, submission.
    busy: VecDeque<(u64, u64, Number)>,
}

impl Circle {
    const fn new(bytes: u64) -> Self {
        Self {
            bytes,
            head: 0,
            busy: VecDeque::new(),
        }
    }

    /// Returns where the next `bytes` bytes go, and the submission that must be finished first (0
    /// if none).
    fn place(&mut self, bytes: u64) -> (u64, Number) {
        let bytes = bytes.next_multiple_of(64);
        if self.head + bytes > self.bytes {
            self.head = 0;
        }
        let (start, end) = (self.head, self.head + bytes);
        let last = self
            .busy
            .iter()
            .rposition(|(at, length, _)| *at < end && at + length > start);
        let number = last.map_or(0, |index| self.busy[index].2);
        // What is older than that is finished with it.
        self.busy.drain(..last.map_or(0, |index| index + 1));
        self.head = end;
        (start, number)
    }

    fn note(&mut self, start: u64, bytes: u64, number: Number) {
        self.busy
            .push_back((start, bytes.next_multiple_of(64), number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_waits_only_for_what_was_there_before() {
        let mut circle = Circle::new(256);
        for number in 1..=4 {
            assert_eq!(circle.place(60), ((number - 1) * 64, 0));
            circle.note((number - 1) * 64, 60, number);
        }
        assert_eq!(circle.place(64), (0, 1));
        circle.note(0, 64, 5);
        // Two of the old places at once: the later one counts.
        assert_eq!(circle.place(128), (64, 3));
        circle.note(64, 128, 6);
        // It does not fit behind the last one, so it is the first place again.
        assert_eq!(circle.place(128), (0, 6));
    }
}
