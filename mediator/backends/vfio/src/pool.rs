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

/// Maximum number of bytes that are scrubbed at a time.
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
    /// Offset in the BAR of the first byte of the piece.
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
    /// Returns a pool of the memory in all usable areas of `bar`. Its content is unknown, so the
    /// scrubber fills all of it with zeros before guests get it.
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

    /// Takes a piece of `bytes` bytes, a multiple of 4 KiB, out of the pool. If only memory that is
    /// not scrubbed yet (filled with zeros) could make room for it, waits for the scrubber.
    ///
    /// The call waits at most until everything that needed scrubbing when the wait began is
    /// scrubbed. It does not wait for memory that is freed later, because another guest that
    /// constantly allocates and frees could then make it wait forever.
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

    /// Returns `piece`, which a guest has freed, to the pool, where the scrubber fills it with
    /// zeros. Returns false if the scrubber has ended; the caller must then fill it with zeros.
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

    /// Waits until a piece of memory needs to be filled with zeros, and returns it. Returns `None`
    /// when the scrubber should end: [`Self::end`] was called and no piece is left that it must
    /// still fill.
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

    /// Records that the scrubber has filled the piece of `task` with zeros, so that guests can get
    /// it. If [`Self::resume`] was called since [`Self::next`] returned `task`, a reset of the
    /// device may have undone the filling; the piece is then queued for the scrubber again.
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

    /// Makes calls of [`Self::take`] wait, until [`Self::resume`] or [`Self::end`] is called. They
    /// give up after 3 seconds.
    pub fn pause(&self) {
        self.state.lock().paused = true;
    }

    /// Ends a pause, in which the device may have been reset. The scrubber fills all free memory
    /// with zeros again, because a reset may have changed its content.
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

    /// Makes [`Self::take`] refuse all allocations from now on. `end` says what the scrubber must
    /// still fill with zeros before it ends.
    pub fn end(&self, end: End) {
        let mut state = self.state.lock();
        state.end = end;
        self.changed.notify_all();
    }

    /// Returns whether [`Self::end`] was called, so that the pool refuses all allocations.
    pub fn has_ended(&self) -> bool {
        self.state.lock().end != End::NotYet
    }

    /// Returns the total size of all pieces that guests have, in bytes.
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
