//! Barriers of a block: `bar` and `barrier`, counted by thread (as from sm_70 on).

use crate::limits::{BARRIERS, BLOCK_THREADS_MAX};
use crate::registers::WARP;

/// Warps of the largest block.
const WARPS_MAX: usize = BLOCK_THREADS_MAX as usize / WARP;

/// Who has arrived at one barrier.
#[derive(Clone, Debug, Default)]
struct Barrier {
    generation: u64,
    arrived: [u32; WARPS_MAX],
    waiting: u32,
    counted: u32,
    expected: Option<u32>,
    truths: u32,
    outcome: Outcome,
}

/// Result of a reduction over the threads of a barrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Number of threads whose predicate is true.
    pub(super) truths: u32,
    /// Number of threads that arrived.
    pub(super) threads: u32,
}

/// Lanes of one warp that arrive at a barrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Number of the warp in the block.
    pub(super) warp: u32,
    /// The lanes, as a mask.
    pub(super) lanes: u32,
    /// Lanes whose predicate is true, as a mask.
    pub(super) truths: u32,
    /// Number of threads that the barrier waits for; `None` stands for all that still run.
    pub(super) expected: Option<u32>,
    /// Whether the lanes wait until the barrier is complete.
    pub(super) waits: bool,
}

/// The barriers of a running block, and the threads that still run.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    barriers: [Barrier; BARRIERS],
    running: [u32; WARPS_MAX],
    threads: u32,
}

impl Barriers {
    /// Begins a block of `threads` threads. Generations go on.
    pub(super) fn reset(&mut self, threads: u32) {
        self.running = std::array::from_fn(|warp| lanes_of_warp(threads, warp));
        self.threads = threads;
        for barrier in &mut self.barriers {
            barrier.clear();
        }
    }

    /// Returns how often barrier `id` has been completed.
    pub(super) fn generation(&self, id: u32) -> u64 {
        self.barriers[id as usize].generation
    }

    /// Returns the result of the latest completion of barrier `id`.
    pub(super) fn outcome(&self, id: u32) -> Outcome {
        self.barriers[id as usize].outcome
    }

    /// Returns how many threads have arrived at barrier `id`, and how many it waits for.
    pub(super) fn progress(&self, id: u32) -> (u32, u32) {
        let barrier = &self.barriers[id as usize];
        (barrier.counted, barrier.expected.unwrap_or(self.threads))
    }

    /// Notes that lanes arrive at barrier `id`, which is below [`BARRIERS`], and completes the
    /// barrier if no thread is missing.
    pub(super) fn arrive(&mut self, id: u32, arrival: Arrival) {
        let barrier = &mut self.barriers[id as usize];
        let lanes = arrival.lanes.count_ones();
        barrier.arrived[arrival.warp as usize] |= arrival.lanes;
        barrier.counted = barrier.counted.saturating_add(lanes);
        if arrival.waits {
            barrier.waiting = barrier.waiting.saturating_add(lanes);
        }
        let truths = (arrival.truths & arrival.lanes).count_ones();
        barrier.truths = barrier.truths.saturating_add(truths);
        barrier.expected = arrival.expected;
        self.conclude(id as usize);
    }

    /// Notes that lanes have ended, and completes the barriers that waited only for them.
    pub(super) fn end(&mut self, warp: u32, lanes: u32) {
        self.threads -= (self.running[warp as usize] & lanes).count_ones();
        self.running[warp as usize] &= !lanes;
        for id in 0..BARRIERS {
            if self.barriers[id].counted != 0 {
                self.conclude(id);
            }
        }
    }

    fn conclude(&mut self, id: usize) {
        let complete = match self.barriers[id].expected {
            None => self.barriers[id].waiting >= self.threads,
            // Hardware counts warps: lanes that the warp does not have, or has no more, count with
            // it.
            Some(expected) => {
                let barrier = &self.barriers[id];
                let absent: u32 = (0..WARPS_MAX)
                    .filter(|warp| barrier.arrived[*warp] != 0)
                    .map(|warp| (!self.running[warp] & !barrier.arrived[warp]).count_ones())
                    .sum();
                barrier.counted.saturating_add(absent) >= expected
            }
        };
        if complete {
            let barrier = &mut self.barriers[id];
            barrier.outcome = Outcome {
                truths: barrier.truths,
                threads: barrier.counted,
            };
            barrier.generation += 1;
            barrier.clear();
        }
    }
}

impl Barrier {
    fn clear(&mut self) {
        *self = Self {
            generation: self.generation,
            outcome: self.outcome,
            ..Self::default()
        };
    }
}

/// Returns the lanes that exist in warp number `warp` of a block of `threads` threads, as a mask.
pub(super) fn lanes_of_warp(threads: u32, warp: usize) -> u32 {
    let before = (warp * WARP) as u32;
    match threads.saturating_sub(before) {
        0 => 0,
        32.. => u32::MAX,
        some => (1 << some) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(warp: u32, lanes: u32, expected: Option<u32>) -> Arrival {
        Arrival {
            warp,
            lanes,
            truths: lanes & 1,
            expected,
            waits: true,
        }
    }

    fn barriers(threads: u32) -> Barriers {
        let mut barriers = Barriers::default();
        barriers.reset(threads);
        barriers
    }

    #[test]
    fn a_barrier_opens_when_all_that_still_run_have_come() {
        let mut barriers = barriers(40);
        barriers.arrive(0, arrival(0, u32::MAX, None));
        barriers.arrive(0, arrival(1, 0x0f, None));
        assert_eq!(barriers.generation(0), 0);
        assert_eq!(barriers.progress(0), (36, 40));
        barriers.end(1, 0xf0);
        assert_eq!(barriers.generation(0), 1);
        let outcome = barriers.outcome(0);
        assert_eq!((outcome.truths, outcome.threads), (2, 36));
    }

    #[test]
    fn a_count_includes_the_lanes_that_a_short_warp_lacks() {
        let mut barriers = barriers(48);
        barriers.arrive(1, arrival(0, u32::MAX, Some(64)));
        assert_eq!(barriers.generation(1), 0);
        barriers.arrive(1, arrival(1, 0xffff, Some(64)));
        assert_eq!(barriers.generation(1), 1);
    }

    #[test]
    fn lanes_of_warps() {
        assert_eq!(lanes_of_warp(33, 0), u32::MAX);
        assert_eq!(lanes_of_warp(33, 1), 1);
        assert_eq!(lanes_of_warp(33, 2), 0);
    }
}
