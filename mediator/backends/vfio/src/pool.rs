//! The memory that is lent: who may have which part, and what has to be scrubbed first.
//!
//! A byte is *clean* (zero, and nobody's), *lent*, *dirty* (somebody had it), or *unknown* (what the device had in it
//! before). Only clean memory is lent. Dirty and unknown memory becomes clean piece by piece, by [`crate::scrubber`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_memory::{RangeAllocator, page_alignment};

use crate::bar::Bar;

/// Bytes scrubbed at a time, at most.
const PIECE_BYTES: u64 = 4 << 20;
/// Longest time that whoever wants memory waits while nothing is lent.
const PAUSE_PATIENCE: Duration = Duration::from_secs(3);
/// Distance of areas in the allocator's addresses: more than any BAR has, so that no two areas touch.
const AREA_SHIFT: u32 = 48;

/// A range of the BAR, in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    area: u64,
    /// First byte in the BAR.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Piece {
    /// Its address for the allocator. Alignment is that of the offset.
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

    /// The first part, and what remains of it.
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

/// Why nothing was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing is lent for the time being, and that for long.
    Paused,
    /// There is no range of that size.
    Full {
        /// Bytes that nobody has.
        free: u64,
    },
    /// The device is being given back.
    Ended,
}

/// How lending ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    /// When everything lent is back and scrubbed.
    AllBack,
    /// When what is back is scrubbed.
    Now,
}

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
    lent_bytes: u64,
    /// How often all that was clean became dirty.
    doubts: u64,
    /// Whether nothing is lent for the time being.
    paused: bool,
    end: End,
    /// Whether somebody scrubs.
    attended: bool,
}

/// What is to be scrubbed next.
#[derive(Debug)]
pub(crate) struct Task {
    pub piece: Piece,
    doubts: u64,
}

/// The memory that is lent. A leaf lock.
pub(crate) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

impl Pool {
    /// All of the BAR's areas, of which nobody knows what is in them.
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
                clean: RangeAllocator::default(),
                dirty: VecDeque::new(),
                unknown,
                clean_bytes: 0,
                scrubbing_bytes: 0,
                scrubbed_bytes: 0,
                lent_bytes: 0,
                doubts: 0,
                paused: false,
                end: End::NotYet,
                attended: true,
            }),
            changed: Condvar::new(),
        })
    }

    /// Lends `bytes` bytes, a multiple of 4 KiB; waits for scrubbing if that may make room for them.
    ///
    /// It waits for as much as is to be scrubbed now, and not for what comes back meanwhile: a guest that takes and gives
    /// back all the time would keep another waiting for ever.
    pub fn lend(&self, bytes: u64) -> Result<Piece, Refused> {
        let deadline = Instant::now() + PAUSE_PATIENCE;
        let mut state = self.lock();
        let mut patience = None;
        loop {
            if state.end != End::NotYet {
                return Err(Refused::Ended);
            }
            if state.paused {
                if Instant::now() >= deadline {
                    return Err(Refused::Paused);
                }
                state = self.wait_until(state, deadline);
                continue;
            }
            if let Some(address) = state.clean.take_lowest(bytes, page_alignment(bytes)) {
                state.clean_bytes -= bytes;
                state.lent_bytes += bytes;
                return Ok(Piece::at(address, bytes));
            }
            let free = state.free_bytes();
            // How much will have been scrubbed by then. After a doubt, all of it is to be scrubbed again.
            let all = state.scrubbed_bytes + free - state.clean_bytes;
            let known = patience.filter(|(doubts, _)| *doubts == state.doubts);
            let last = known.map_or(all, |(_, last)| last);
            patience = Some((state.doubts, last));
            if free < bytes || free == state.clean_bytes || state.scrubbed_bytes >= last {
                return Err(Refused::Full { free });
            }
            state = self.wait(state);
        }
    }

    /// Takes back what was lent. False if the caller has to scrub it, because nobody else does any more.
    #[must_use]
    pub fn take_back(&self, piece: Piece) -> bool {
        let mut state = self.lock();
        state.lent_bytes -= piece.bytes;
        if state.attended {
            state.dirty.push_back(piece);
        }
        self.changed.notify_all();
        state.attended
    }

    /// What is to be scrubbed next; waits for it. None once there is nothing more to do for ever.
    pub fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.take_task() {
                return Some(task);
            }
            let over = match state.end {
                End::NotYet => false,
                End::AllBack => state.lent_bytes == 0,
                End::Now => true,
            };
            if over {
                state.attended = false;
                return None;
            }
            state = self.wait(state);
        }
    }

    /// A piece is zero now. Doubted meanwhile, it counts as dirty still, since somebody may have had it.
    pub fn scrubbed(&self, task: &Task) {
        let mut state = self.lock();
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

    /// Has whoever wants memory wait until [`Self::resume`], or the end.
    pub fn pause(&self) {
        self.lock().paused = true;
    }

    /// Lends again. What nobody has may have been changed meanwhile, or not have become zero: it is scrubbed again.
    pub fn resume(&self) {
        let mut state = self.lock();
        state.paused = false;
        state.doubts += 1;
        state.clean_bytes = 0;
        for Range { start, end } in state.clean.take_all() {
            state.dirty.push_back(Piece::at(start, end - start));
        }
        self.changed.notify_all();
    }

    /// Lends nothing any more.
    pub fn end(&self) {
        self.end_when(End::AllBack);
    }

    /// The same, and does not wait for what is lent.
    pub fn end_now(&self) {
        self.end_when(End::Now);
    }

    /// Whether it lends nothing any more.
    pub fn has_ended(&self) -> bool {
        self.lock().end != End::NotYet
    }

    /// Bytes that are lent.
    pub fn lent_bytes(&self) -> u64 {
        self.lock().lent_bytes
    }

    fn end_when(&self, end: End) {
        let mut state = self.lock();
        state.end = end;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
    ) -> MutexGuard<'a, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes that nobody has.
    fn free_bytes(&self) -> u64 {
        let queued = self.dirty.iter().chain(&self.unknown);
        let queued: u64 = queued.map(|piece| piece.bytes).sum();
        self.clean_bytes + self.scrubbing_bytes + queued
    }

    /// What somebody had comes first. What the device had in it before is nobody's secret here: once nothing is lent any
    /// more, it stays.
    fn take_task(&mut self) -> Option<Task> {
        let ended = self.end != End::NotYet;
        let (queue, dirty) = if self.dirty.is_empty() {
            (&mut self.unknown, false)
        } else {
            (&mut self.dirty, true)
        };
        if ended && !dirty {
            return None;
        }
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
