//! How deep calls go, and what memory that takes.

use crate::program::FrameBytes;

/// Nested calls that functions which call themselves, or each other, get memory for.
const RECURSION_DEPTH: u64 = 64;
/// Registers of a warp, or local memory of a thread, for all nested calls, at most.
const STACK_BYTES_MAX: u64 = 64 << 20;

/// A function calls another, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// What the deepest chain of calls from function 0 takes; `None` if it is too much.
pub(super) fn deepest(frames: &[FrameBytes], edges: &[Edge]) -> Option<FrameBytes> {
    let mut callers = vec![0_usize; frames.len()];
    let mut callees = vec![Vec::new(); frames.len()];
    for edge in edges {
        callers[edge.to] += 1;
        callees[edge.from].push(edge.to);
    }
    // Callers before callees: each function is taken once all of its callers are known.
    let mut above = vec![(0_u64, 0_u64); frames.len()];
    let mut deepest = (0, 0);
    let mut order: Vec<usize> = (0..frames.len()).filter(|f| callers[*f] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        let function = order[next];
        next += 1;
        let with = add(above[function], frames[function]);
        deepest = most(deepest, with);
        for callee in &callees[function] {
            above[*callee] = most(above[*callee], with);
            callers[*callee] -= 1;
            if callers[*callee] == 0 {
                order.push(*callee);
            }
        }
    }
    if order.len() < frames.len() {
        deepest = recursive(frames);
    }
    let fits = deepest.0 <= STACK_BYTES_MAX && deepest.1 <= STACK_BYTES_MAX;
    fits.then_some(FrameBytes {
        registers: deepest.0 as u32,
        local: deepest.1 as u32,
    })
}

/// Every function once, and the largest as often as recursion may go deep.
fn recursive(frames: &[FrameBytes]) -> (u64, u64) {
    let all = frames.iter().fold((0, 0), |sum, frame| add(sum, *frame));
    let largest = frames
        .iter()
        .fold((0, 0), |max, frame| most(max, add((0, 0), *frame)));
    (
        all.0 + RECURSION_DEPTH * largest.0,
        all.1 + RECURSION_DEPTH * largest.1,
    )
}

fn add(sum: (u64, u64), frame: FrameBytes) -> (u64, u64) {
    (
        sum.0 + u64::from(frame.registers),
        sum.1 + u64::from(frame.local),
    )
}

fn most(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.max(b.0), a.1.max(b.1))
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
    fn the_deepest_chain_counts_and_recursion_is_bounded() {
        let frames = [frame(100), frame(10), frame(20), frame(5)];
        let edge = |from, to| Edge { from, to };
        let edges = [edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3), edge(0, 3)];
        let stack = deepest(&frames, &edges).unwrap();
        assert_eq!((stack.registers, stack.local), (125, 48));
        let loops = [edge(0, 1), edge(1, 1)];
        let stack = deepest(&frames[..2], &loops).unwrap();
        assert_eq!(stack.registers, 110 + 6400);
        assert!(deepest(&[frame(60 << 20), frame(5 << 20)], &[edge(0, 1)]).is_none());
    }
}
