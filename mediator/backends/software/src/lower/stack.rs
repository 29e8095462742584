//! Where the frames of functions are, how deep calls go, and what memory that takes.
//!
//! Lanes of one warp may be in different functions at the same time. Lanes of a register are next
//! to each other, and how far apart depends on its class; so the registers of two functions never
//! share a place: one lane's could be another's, return positions included. Local memory is apart
//! for each lane, and may be shared.

use crate::registers::FrameBytes;

/// Nested calls that functions which call themselves, or each other, get memory for.
const RECURSION_DEPTH: u64 = 64;
/// Registers of a warp, or local memory of a thread, for all nested calls, at most.
const STACK_BYTES_MAX: u64 = 64 << 20;

/// States that function number `from` calls function number `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Where the frames of a kernel's functions are.
#[derive(Debug)]
pub(super) struct Arrangement {
    /// Memory of all frames together.
    pub(super) stack: FrameBytes,
    /// Where the registers of each function are, at its first level of recursion.
    starts: Vec<u64>,
    /// Registers of all functions that may be called again before they have returned: from one
    /// level of recursion to the next.
    level: u64,
}

impl Arrangement {
    /// Returns the distance from the registers of function `from` to those of `to`, which it calls.
    pub(super) fn distance(&self, from: usize, to: usize) -> u32 {
        let (from, to) = (self.starts[from], self.starts[to]);
        let distance = if to > from {
            to - from
        } else {
            self.level + to - from
        };
        // It fits: `arrange` has limited the whole.
        distance as u32
    }
}

/// Arranges the frames of function 0 and of those that it calls. Returns `None` if they take too
/// much memory.
pub(super) fn arrange(frames: &[FrameBytes], edges: &[Edge]) -> Option<Arrangement> {
    let mut callers = vec![0_usize; frames.len()];
    let mut callees = vec![Vec::new(); frames.len()];
    for edge in edges {
        callers[edge.to] += 1;
        callees[edge.from].push(edge.to);
    }
    // Callers before callees: each function is taken once all of its callers are known.
    let mut above = vec![0_u64; frames.len()];
    let mut local = 0;
    let mut order: Vec<usize> = (0..frames.len()).filter(|f| callers[*f] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        let function = order[next];
        next += 1;
        let with = above[function] + u64::from(frames[function].local);
        local = local.max(with);
        for callee in &callees[function] {
            above[*callee] = above[*callee].max(with);
            callers[*callee] -= 1;
            if callers[*callee] == 0 {
                order.push(*callee);
            }
        }
    }
    // Those that are left call themselves or each other, or are called by such.
    let recursive = (0..frames.len()).filter(|f| callers[*f] != 0);
    let level = recursive.clone().map(|f| u64::from(frames[f].registers));
    let level = level.sum::<u64>();
    if level != 0 {
        local = recursive_local(frames);
        order.extend(recursive);
    }
    let mut starts = vec![0; frames.len()];
    let mut end = 0;
    for function in order {
        starts[function] = end;
        end += u64::from(frames[function].registers);
    }
    let registers = end + RECURSION_DEPTH * level;
    let fits = registers <= STACK_BYTES_MAX && local <= STACK_BYTES_MAX;
    fits.then_some(Arrangement {
        stack: FrameBytes {
            registers: registers as u32,
            local: local as u32,
        },
        starts,
        level,
    })
}

/// Local memory of every function once, and of the largest as often as recursion may go deep.
fn recursive_local(frames: &[FrameBytes]) -> u64 {
    let locals = frames.iter().map(|frame| u64::from(frame.local));
    locals.clone().sum::<u64>() + RECURSION_DEPTH * locals.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(registers: u32) -> FrameBytes {
        FrameBytes {
            registers,
            local: 16,
        }
    }

    #[test]
    fn frames_have_places_of_their_own_and_recursion_is_bounded() {
        let frames = [frame(100), frame(10), frame(20), frame(5)];
        let edge = |from, to| Edge { from, to };
        let edges = [edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3), edge(0, 3)];
        let arranged = arrange(&frames, &edges).unwrap();
        assert_eq!((arranged.stack.registers, arranged.stack.local), (135, 48));
        let reached = [(0, 1), (0, 2), (0, 3)].map(|(f, t)| arranged.distance(f, t));
        assert_eq!(reached, [100, 110, 130]);
        assert_eq!(arranged.distance(1, 3), 30);
        assert_eq!(arranged.distance(2, 3), 20);

        // 1 and 2 call each other; the next level begins behind both.
        let loops = [edge(0, 1), edge(1, 2), edge(2, 1), edge(2, 2)];
        let arranged = arrange(&frames[..3], &loops).unwrap();
        assert_eq!(arranged.stack.registers, 130 + 64 * 30);
        assert_eq!(arranged.distance(1, 2), 10);
        assert_eq!(arranged.distance(2, 1), 20);
        assert_eq!(arranged.distance(2, 2), 30);
        assert!(arrange(&[frame(60 << 20), frame(5 << 20)], &[edge(0, 1)]).is_none());
    }
}
