//! The pool of memory that is partitioned: knows which parts are free, and which have to be
//! scrubbed (filled with zeros) first.
//!
//! A byte is *clean* (zero and free), *taken* (in a partition), *dirty* (was in a partition), or
//! *unknown* (from before the back end opened the device). Only clean memory is taken. Dirty and
//! unknown memory becomes clean piece by piece, by [`crate::scrubber`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_memory::{RangeAllocator, page_alignment};
use parking_lot::{Condvar, Mutex};

use crate::bar::Bar;

/// Most bytes that are scrubbed at a time.
const PIECE_BYTES: u64 = 4 << 20;
/// Longest time that an allocation waits while the pool is paused.
const PAUSE_PATIENCE: Duration = Duration::from_secs(3);
/// Distance of areas in the allocator's addresses: more than any BAR has, so that no two areas
/// touch.
const AREA_SHIFT: u32 = 48;

/// A range of the BAR's memory that lies in one usable area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    area: u64,
    /// Offset of the first byte in the BAR.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Piece {
    /// Returns the address of the piece for the allocator, with the alignment of the offset.
    fn address(self) -> u64 {
        ((self.area + 1) << AREA_SHIFT) + self.offset
    }

    fn at(address: u64, bytes: u64) -> Self {
        Self {
            area: (address >> AREA_SHIFT) - 1,
            offset: address & ((1 << AREA_SHIFT) - 1),
            bytes,
        }
    }

    /// Returns the first part, and what remains of it.
    fn split(self) -> (Self, Option<Self>) {
        let bytes = self.bytes.min(PIECE_BYTES);
        let rest = Self {
            offset: self.offset + bytes,
            bytes: self.bytes - bytes,
            ..self
        };
        (Self { bytes, ..self }, (rest.bytes != 0).then_some(rest))
    }
}

/// The reason for which the pool refuses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The pool has been paused for longer than an allocation waits.
    Paused,
    /// No free range is large enough.
    Full {
        /// Free bytes of the whole pool.
        free: u64,
    },
    /// The device is being given back to the host.
    Ended,
}

/// When the scrubbing of a pool ends. The pool refuses allocations as soon as this is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    NotYet,
    /// When all partitions are back and scrubbed.
    AllBack,
    /// When the partitions that are back already are scrubbed.
    Now,
}

#[derive(Default)]
struct State {
    clean: RangeAllocator,
    /// What came back, and what is there from before.
    dirty: VecDeque<Piece>,
    unknown: VecDeque<Piece>,
    /// Bytes that are clean, and bytes that are being scrubbed.
    clean_bytes: u64,
    scrubbing_bytes: u64,
    /// Bytes scrubbed so far.
    scrubbed_bytes: u64,
    taken_bytes: u64,
    /// How often all that was clean became dirty.
    doubts: u64,
    /// Whether allocations have to wait.
    paused: bool,
    end: End,
    /// Whether the scrubber has ended, so that nothing comes out of `dirty` any more.
    unattended: bool,
}

/// A piece that the scrubber fills with zeros next.
#[derive(Debug)]
pub(crate) struct Task {
    pub piece: Piece,
    doubts: u64,
}

/// Gives out the memory of a BAR as partitions, and takes it back. No other lock is taken under the
/// pool's lock.
pub(crate) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

impl Pool {
    /// Returns a pool of all usable areas of `bar`. Their content is unknown, so all of it is
    /// scrubbed before it is given out.
    pub fn new(bar: &Bar) -> Arc<Self> {
        let areas = (0..).zip(bar.areas());
        let piece = |(area, range): (u64, causeway_host_vfio::Area)| Piece {
            area,
            offset: range.offset,
            bytes: range.bytes,
        };
        Self::of(areas.map(piece).collect())
    }

    fn of(unknown: VecDeque<Piece>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                unknown,
                ..State::default()
            }),
            changed: Condvar::new(),
        })
    }

    /// Takes `bytes` bytes, a multiple of 4 KiB, out of the pool. Waits for scrubbing if that may
    /// make room for them.
    ///
    /// The wait ends when all memory that was to be scrubbed at its beginning has been: with memory
    /// that comes back meanwhile, a guest that allocates and frees all the time would keep another
    /// waiting for ever.
    ///
    /// # Errors
    /// [`Refusal::Full`] if no free range is large enough, [`Refusal::Paused`] if the pool stays
    /// paused for 3 seconds, [`Refusal::Ended`] after [`Self::end`].
    pub fn take(&self, bytes: u64) -> Result<Piece, Refusal> {
        let deadline = Instant::now() + PAUSE_PATIENCE;
        let mut state = self.state.lock();
        let mut patience = None;
        loop {
            if state.end != End::NotYet {
                return Err(Refusal::Ended);
            }
            if state.paused {
                if Instant::now() >= deadline {
                    return Err(Refusal::Paused);
                }
                self.changed.wait_until(&mut state, deadline);
                continue;
            }
            if let Some(address) = state.clean.take_lowest(bytes, page_alignment(bytes)) {
                state.clean_bytes -= bytes;
                state.taken_bytes += bytes;
                return Ok(Piece::at(address, bytes));
            }
            let free = state.free_bytes();
            // How much will have been scrubbed by then. After a doubt, all of it is to be scrubbed
            // again.
            let all = state.scrubbed_bytes + free - state.clean_bytes;
            let known = patience.filter(|(doubts, _)| *doubts == state.doubts);
            let last = known.map_or(all, |(_, last)| last);
            patience = Some((state.doubts, last));
            if free < bytes || free == state.clean_bytes || state.scrubbed_bytes >= last {
                return Err(Refusal::Full { free });
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes `piece` back into the pool. Returns false if the caller has to scrub it, because the
    /// scrubber has ended.
    #[must_use]
    pub fn take_back(&self, piece: Piece) -> bool {
        let mut state = self.state.lock();
        state.taken_bytes -= piece.bytes;
        if !state.unattended {
            state.dirty.push_back(piece);
        }
        self.changed.notify_all();
        !state.unattended
    }

    /// Waits for the next piece to scrub and returns it; `None` if the pool has ended and no piece
    /// is left to scrub.
    pub fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.take_task() {
                return Some(task);
            }
            let over = match state.end {
                End::NotYet => false,
                End::AllBack => state.taken_bytes == 0,
                End::Now => true,
            };
            if over {
                state.unattended = true;
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Notes that the piece of `task` is zero now. If [`Self::resume`] was called meanwhile, the
    /// stores may have been lost, and the piece is scrubbed again.
    pub fn scrubbed(&self, task: &Task) {
        let mut state = self.state.lock();
        let piece = task.piece;
        state.scrubbing_bytes -= piece.bytes;
        state.scrubbed_bytes += piece.bytes;
        if task.doubts == state.doubts {
            state.clean_bytes += piece.bytes;
            state.clean.give_back(piece.address(), piece.bytes);
        } else {
            state.dirty.push_back(piece);
        }
        self.changed.notify_all();
    }

    /// Makes allocations wait until [`Self::resume`], or until the pool ends.
    pub fn pause(&self) {
        self.state.lock().paused = true;
    }

    /// Ends a pause. All free memory is scrubbed again, because a reset meanwhile may have changed
    /// it or lost the stores of scrubbing.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        state.paused = false;
        state.doubts += 1;
        state.clean_bytes = 0;
        for Range { start, end } in state.clean.take_all() {
            state.dirty.push_back(Piece::at(start, end - start));
        }
        self.changed.notify_all();
    }

    /// Refuses allocations from now on; `end` says when the scrubber ends.
    pub fn end(&self, end: End) {
        let mut state = self.state.lock();
        state.end = end;
        self.changed.notify_all();
    }

    /// Returns whether allocations are refused for good.
    pub fn has_ended(&self) -> bool {
        self.state.lock().end != End::NotYet
    }

    /// Returns the bytes of all partitions that guests have.
    pub fn taken_bytes(&self) -> u64 {
        self.state.lock().taken_bytes
    }
}

impl State {
    /// Returns the free bytes.
    fn free_bytes(&self) -> u64 {
        let queued = self.dirty.iter().chain(&self.unknown);
        let queued: u64 = queued.map(|piece| piece.bytes).sum();
        self.clean_bytes + self.scrubbing_bytes + queued
    }

    /// Returns the next piece to scrub: memory that guests had comes first. The content from before
    /// the back end opened the device is no guest's secret, so it stays if the pool has ended.
    fn take_task(&mut self) -> Option<Task> {
        let queue = match (self.dirty.is_empty(), self.end) {
            (false, _) => &mut self.dirty,
            (true, End::NotYet) => &mut self.unknown,
            (true, _) => return None,
        };
        let (piece, rest) = queue.pop_front()?.split();
        if let Some(rest) = rest {
            queue.push_front(rest);
        }
        self.scrubbing_bytes += piece.bytes;
        Some(Task {
            piece,
            doubts: self.doubts,
        })
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
