//! Launches whose blocks wait for each other: all are alive at once, and take turns on one host
//! thread.

use super::arena::{Areas, Need, ThreadArena};
use super::block::{BlockRunner, Round, need};
use super::launch::Launch;
use crate::registers::Row;

/// Runs all blocks of a launch whose memory has been checked.
pub(super) fn work(launch: &Launch, arena: &mut ThreadArena) {
    let mut shift = launch.begin_shift();
    let one = whole_rows(need(launch));
    let blocks = usize::try_from(launch.blocks()).unwrap_or(0);
    let all = Need {
        registers: one.registers * blocks,
        local: one.local * blocks,
        shared: one.shared * blocks,
    };
    let areas = arena.prepare(&launch.program.constants, all);
    let mut alive = Vec::with_capacity(blocks);
    while let Some(block) = launch.claim() {
        let mut runner = BlockRunner::new(launch, part(areas, one, alive.len()));
        runner.begin(block);
        alive.push(runner);
    }
    let mut instructions = 0;
    while !alive.is_empty() {
        alive.retain_mut(|runner| {
            // There can be many blocks: one that is stopped gets not even one more turn.
            let going = if launch.is_stopped() {
                Round::Ended
            } else {
                runner.round().unwrap_or_else(|fault| {
                    launch.fail(&fault);
                    Round::Ended
                })
            };
            if going == Round::Ended {
                instructions += runner.instructions();
            }
            going == Round::Going
        });
    }
    shift.thread_instructions = instructions;
    drop(alive);
    arena.trim();
}

/// Sizes that keep the memory of each block aligned.
fn whole_rows(need: Need) -> Need {
    let whole = |bytes: usize| bytes.next_multiple_of(size_of::<Row>());
    Need {
        registers: whole(need.registers),
        local: whole(need.local),
        shared: whole(need.shared),
    }
}

/// The memory of block number `index`.
fn part(areas: Areas, one: Need, index: usize) -> Areas {
    Areas {
        constants: areas.constants,
        registers: areas.registers.wrapping_add(one.registers * index),
        local: areas.local.wrapping_add(one.local * index),
        shared: areas.shared.wrapping_add(one.shared * index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::launch::{RUNNER_BYTES, WARP_BYTES};

    #[test]
    fn the_state_of_a_block_takes_no_more_than_is_counted() {
        for warps in [1, 32] {
            let bytes = BlockRunner::bytes(warps) + 3 * size_of::<Row>();
            let counted = RUNNER_BYTES + WARP_BYTES * warps as u64;
            assert!(bytes as u64 <= counted, "{bytes} of {warps} warps");
        }
    }
}
