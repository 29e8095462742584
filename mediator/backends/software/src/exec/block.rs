//! A block: its warps take turns on one host thread until all have ended.

use std::time::Duration;

use super::arena::{Areas, Need, ThreadArena};
use super::barrier::{Barriers, lanes_of_warp};
use super::context::{Area, Context};
use super::fault::{BlockFault, Trouble};
use super::groups::State;
use super::launch::Launch;
use super::warp::{Pause, Warp};
use crate::registers::WARP;

/// Runs blocks of a launch, one after the other, until none is left, or until `turn` is over.
pub(super) fn work(launch: &Launch, arena: &mut ThreadArena, turn: Option<Duration>) {
    let mut shift = launch.begin_shift();
    let areas = arena.prepare(&launch.program.constants, need(launch));
    let mut runner = BlockRunner::new(launch, areas);
    while let Some(block) = launch.claim() {
        if let Err(fault) = runner.run(block) {
            launch.fail(&fault);
        }
        if turn.is_some_and(|turn| shift.began.elapsed() > turn) {
            break;
        }
    }
    shift.thread_instructions = runner.instructions();
    drop(runner);
    arena.trim();
}

/// How a block stands after its warps have had their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// All threads have ended, or the launch ends early.
    Ended,
    /// Some threads go on.
    Going,
}

/// Runs the blocks of one launch, one after the other, on one host thread.
pub(super) struct BlockRunner<'l> {
    launch: &'l Launch,
    areas: Areas,
    context: Context<'l>,
    warps: Vec<Warp>,
    barriers: Barriers,
}

/// Bytes that a block of the launch needs on its host thread.
pub(super) fn need(launch: &Launch) -> Need {
    let warps = launch.grid.block_threads().div_ceil(WARP as u32) as usize;
    let stack = launch.program.stack;
    Need {
        registers: stack.registers as usize * warps,
        local: stack.local as usize * warps * WARP,
        shared: launch.shared_bytes() as usize,
    }
}

impl<'l> BlockRunner<'l> {
    /// A runner whose memory is `areas`, made for this launch by [`need`].
    pub(super) fn new(launch: &'l Launch, areas: Areas) -> Self {
        let mut context = Context::new(launch, areas.constants);
        context.parameters = launch.parameter_area();
        context.workspace = launch.workspace_area();
        context.shared = Area {
            base: areas.shared,
            bytes: launch.shared_bytes(),
        };
        let warps = launch.grid.block_threads().div_ceil(WARP as u32);
        Self {
            launch,
            areas,
            context,
            warps: (0..warps)
                .map(|number| Warp::new(number, launch.is_together()))
                .collect(),
            barriers: Barriers::default(),
        }
    }

    /// Returns the bytes that the runner of a block of `warps` warps takes.
    #[cfg(test)]
    pub(super) fn bytes(warps: usize) -> usize {
        size_of::<Self>() + warps * Warp::BYTES
    }

    /// Thread-instructions executed so far.
    pub(super) fn instructions(&self) -> u64 {
        self.warps.iter().map(|warp| warp.instructions).sum()
    }

    /// Runs one block to its end, or until the session's `stop` is set.
    fn run(&mut self, block: [u32; 3]) -> Result<(), BlockFault> {
        self.begin(block);
        while self.round()? == Round::Going {}
        Ok(())
    }

    /// Puts all threads of a block at the start of the kernel.
    pub(super) fn begin(&mut self, block: [u32; 3]) {
        let threads = self.launch.grid.block_threads();
        self.context.block = block;
        self.barriers.reset(threads);
        for warp in &mut self.warps {
            warp.start(lanes_of_warp(threads, warp.number as usize));
        }
    }

    /// Gives each warp of the block a turn.
    pub(super) fn round(&mut self) -> Result<Round, BlockFault> {
        let before = self.instructions();
        let (mut running, mut expired) = (false, false);
        for index in 0..self.warps.len() {
            if self.warps[index].groups.waiting.is_empty() {
                continue;
            }
            match self.run_warp(index)? {
                Pause::Done => {}
                Pause::Blocked => running = true,
                Pause::Expired => (running, expired) = (true, true),
            }
            if self.launch.is_stopped() {
                return Ok(Round::Ended);
            }
        }
        match running {
            false => Ok(Round::Ended),
            true if expired || self.instructions() != before => Ok(Round::Going),
            true => Err(self.deadlock()),
        }
    }

    fn run_warp(&mut self, index: usize) -> Result<Pause, BlockFault> {
        let stack = self.launch.program.stack;
        let warp = &mut self.warps[index];
        let registers = self
            .areas
            .registers
            .wrapping_add(stack.registers as usize * index);
        let local = Area {
            base: self
                .areas
                .local
                .wrapping_add(stack.local as usize * WARP * index),
            bytes: stack.local,
        };
        self.context.bind_warp(warp.number, registers, local);
        warp.run(&self.launch.program, &mut self.context, &mut self.barriers)
            .map_err(|(pc, trouble)| BlockFault {
                block: self.context.block,
                thread: Some(warp.number * WARP as u32 + lane_of(&trouble, self.context.mask)),
                pc,
                trouble,
            })
    }

    /// All threads that still run wait, and none is left that could let them go on.
    fn deadlock(&self) -> BlockFault {
        let waiting = self
            .warps
            .iter()
            .find_map(|w| Some((w, w.groups.waiting.first()?)));
        let (thread, pc, text) = match waiting {
            None => (None, 0, String::from("no thread of the block can continue")),
            Some((warp, group)) => {
                let thread = warp.number * WARP as u32 + group.mask.trailing_zeros();
                (Some(thread), group.pc, self.reason(group.state, group.mask))
            }
        };
        BlockFault {
            block: self.context.block,
            thread,
            pc,
            trouble: Trouble::Deadlock(text),
        }
    }

    fn reason(&self, state: State, mask: u32) -> String {
        match state {
            State::Barrier { id, .. } => {
                let (arrived, expected) = self.barriers.progress(id);
                format!("waits at barrier {id}, where {arrived} of {expected} threads have arrived")
            }
            State::Converging | State::Ready => format!(
                "waits for lanes of its warp that do not arrive: only lanes {mask:#010x} are there"
            ),
        }
    }
}

fn lane_of(trouble: &Trouble, mask: u32) -> u32 {
    match trouble {
        Trouble::Access { lane, .. }
        | Trouble::Assertion { lane, .. }
        | Trouble::Texture { lane, .. }
        | Trouble::Surface { lane, .. } => *lane,
        Trouble::Trap | Trouble::CallDepth | Trouble::Deadlock(_) => mask.trailing_zeros() & 31,
    }
}
