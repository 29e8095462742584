//! Staging memory, through which memory of the process that the GPU does not reach is copied.
//!
//! What goes to the device is put behind what went before, in a circle. What comes from the device
//! comes into the two stages of a *lane* in turn, so that one is filled while the other is read.
//! Large copies, which several threads make, have a lane for each, in both directions.

use std::collections::VecDeque;

use causeway_shim_linux::shim::{Buffer, MemoryKind};

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::rings::Submission;

/// Most bytes that are staged as one.
pub(super) const GROUP_BYTES: u64 = 1 << 20;
/// Bytes for copies to the device.
const CIRCLE_BYTES: u64 = 4 * GROUP_BYTES;
/// Bytes of a lane.
const LANE_BYTES: u64 = 2 * GROUP_BYTES;
/// Variable of the environment that says how many threads make a large copy, 1 to [`LANES_MAX`].
const THREADS: &str = "CAUSEWAY_CUDA_COPY_THREADS";
/// Most lanes: more threads than these find no more bandwidth of memory.
const LANES_MAX: usize = 4;
/// Processors for each thread of a copy: the program and the device's consumer want some, too.
const PROCESSORS_OF_A_LANE: usize = 4;

/// Staging memory of the process.
pub(super) struct Staging {
    host: u64,
    gpu: u64,
    circle: Circle,
    /// Lanes after the first, once a large copy has wanted them.
    more: Option<Buffer<'static>>,
    /// Lanes that there may be.
    lanes_max: usize,
    _memory: Buffer<'static>,
}

/// Two stages, which are used in turn.
pub(super) type Lane = [Stage; 2];

/// A place in staging memory, at the CPU's and the GPU's address.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    pub(super) host: u64,
    pub(super) gpu: u64,
    offset: u64,
    bytes: u64,
}

impl Stage {
    /// Returns the stage of [`GROUP_BYTES`] bytes at an address of the CPU and of the GPU.
    pub(super) const fn at(host: u64, gpu: u64) -> Self {
        Self {
            host,
            gpu,
            offset: 0,
            bytes: GROUP_BYTES,
        }
    }
}

impl Staging {
    /// Allocates staging memory.
    pub(super) fn new(driver: &Driver) -> Answer<Self> {
        let bytes = CIRCLE_BYTES + LANE_BYTES;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = Buffer::new(driver.device, driver.space, bytes, MemoryKind::Host);
        let memory = memory.map_err(|error| {
            log::warn!("cannot allocate staging memory: {error}");
            Code::OUT_OF_MEMORY
        })?;
        Ok(Self {
            host: memory.cpu.window().as_ptr().as_ptr() as u64,
            gpu: memory.gpu.address(),
            circle: Circle::new(CIRCLE_BYTES),
            more: None,
            lanes_max: lanes_max(processors, std::env::var(THREADS).ok().as_deref()),
            _memory: memory,
        })
    }

    /// Returns a place for `bytes` bytes (at most [`GROUP_BYTES`]) that go to the device, once the
    /// device has read what was there.
    pub(super) fn place(&mut self, driver: &Driver, bytes: u64) -> Answer<Stage> {
        let (offset, before) = self.circle.place(bytes);
        before
            .into_iter()
            .try_for_each(|reader| driver.wait_for(reader))?;
        Ok(self.stage(offset, bytes))
    }

    /// Notes which submission reads a place.
    pub(super) fn note(&mut self, stage: Stage, reader: Submission) {
        self.circle.note(stage.offset, stage.bytes, reader);
    }

    /// Returns the lane that there always is.
    pub(super) const fn first_lane(&self) -> Lane {
        let (host, gpu) = (self.host + CIRCLE_BYTES, self.gpu + CIRCLE_BYTES);
        lane_at(host, gpu)
    }

    /// Returns the lanes for a large copy: as many as there are processors and memory for.
    pub(super) fn lanes(&mut self, driver: &Driver) -> Vec<Lane> {
        let bytes = LANE_BYTES * (self.lanes_max as u64 - 1);
        if self.more.is_none() && bytes != 0 {
            match Buffer::new(driver.device, driver.space, bytes, MemoryKind::Host) {
                Ok(memory) => self.more = Some(memory),
                Err(error) => {
                    log::debug!("no staging memory for copies by several threads: {error}");
                    self.lanes_max = 1;
                }
            }
        }
        let more = self.more.iter().flat_map(|memory| {
            let host = memory.cpu.window().as_ptr().as_ptr() as u64;
            let gpu = memory.gpu.address();
            let offsets = (0..self.lanes_max as u64 - 1).map(|index| index * LANE_BYTES);
            offsets.map(move |offset| lane_at(host + offset, gpu + offset))
        });
        std::iter::once(self.first_lane()).chain(more).collect()
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

/// Returns the lane at an address of the CPU and of the GPU.
const fn lane_at(host: u64, gpu: u64) -> Lane {
    [
        Stage::at(host, gpu),
        Stage::at(host + GROUP_BYTES, gpu + GROUP_BYTES),
    ]
}

/// Returns how many threads may copy at a time on a machine with this many processors, or what the
/// environment asks for.
fn lanes_max(processors: usize, wanted: Option<&str>) -> usize {
    let wanted = wanted.and_then(|text| text.parse().ok());
    wanted
        .unwrap_or(processors / PROCESSORS_OF_A_LANE)
        .clamp(1, LANES_MAX)
}

/// Which parts of a circle are in use, and by which submissions.
#[derive(Debug)]
struct Circle {
    bytes: u64,
    head: u64,
    /// Oldest first: first byte, number of bytes, submission.
    busy: VecDeque<(u64, u64, Submission)>,
}

impl Circle {
    const fn new(bytes: u64) -> Self {
        Self {
            bytes,
            head: 0,
            busy: VecDeque::new(),
        }
    }

    /// Returns where the next `bytes` bytes go, and the submissions that must be finished first.
    fn place(&mut self, bytes: u64) -> (u64, Vec<Submission>) {
        let bytes = bytes.next_multiple_of(64);
        if self.head + bytes > self.bytes {
            self.head = 0;
        }
        let (start, end) = (self.head, self.head + bytes);
        let last = self
            .busy
            .iter()
            .rposition(|(at, length, _)| *at < end && at + length > start);
        // What is older than that is forgotten, too.
        let before = self.busy.drain(..last.map_or(0, |index| index + 1));
        let before = before.map(|(_, _, reader)| reader).collect();
        self.head = end;
        (start, before)
    }

    fn note(&mut self, start: u64, bytes: u64, reader: Submission) {
        self.busy
            .push_back((start, bytes.next_multiple_of(64), reader));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_more_threads_where_there_are_processors() {
        let lanes = [1, 2, 7, 8, 16, 128].map(|processors| lanes_max(processors, None));
        assert_eq!(lanes, [1, 1, 1, 2, 4, 4]);
        let asked = ["0", "3", "9", "many", ""].map(|wanted| lanes_max(8, Some(wanted)));
        assert_eq!(asked, [1, 3, 4, 2, 2]);
    }

    #[test]
    fn a_place_waits_only_for_what_was_there_before() {
        let reader = |number| Submission {
            ring: (number % 2) as u8,
            number,
        };
        let mut circle = Circle::new(256);
        for number in 1..=4 {
            assert_eq!(circle.place(60), ((number - 1) * 64, vec![]));
            circle.note((number - 1) * 64, 60, reader(number));
        }
        assert_eq!(circle.place(64), (0, vec![reader(1)]));
        circle.note(0, 64, reader(5));
        // Two of the old places at once, which different rings read.
        assert_eq!(circle.place(128), (64, vec![reader(2), reader(3)]));
        circle.note(64, 128, reader(6));
        // It does not fit behind the last one, so it is the first place again.
        assert_eq!(circle.place(128), (0, [4, 5, 6].map(reader).to_vec()));
    }
}
