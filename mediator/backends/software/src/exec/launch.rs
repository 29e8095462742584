//! A launch: a grid of blocks that host threads take one by one.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use causeway_cpu_queue::Table;
use causeway_mediator::backend::{Fault, LaunchShape, Usage};
use causeway_protocol::message::Status;
use parking_lot::{Condvar, Mutex};

use super::context::Area;
use super::fault::BlockFault;
use super::grid::{Grid, Multiprocessors};
use crate::address;
use crate::clock;
use crate::program::Program;
use crate::registers::WARP;
use crate::system::System;
use crate::texture::TextureTable;

/// What the state of a block takes beside its registers, local and shared memory, at most.
pub(super) const RUNNER_BYTES: u64 = 8 << 10;
/// The same of each of its warps.
pub(super) const WARP_BYTES: u64 = 4 << 10;
/// Registers, local and shared memory of blocks that are alive at once, with what the back end
/// keeps of each block, in bytes, at most.
const TOGETHER_BYTES_MAX: u64 = 128 << 20;
/// Warps of blocks that are alive at once, at most.
const TOGETHER_WARPS_MAX: u64 = 1 << 15;

/// A kernel with its grid, its parameters, and the mappings that it sees.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The kernel.
    pub(super) program: Arc<Program>,
    /// What it sees of its address space.
    pub(super) visible: Visible,
    /// Blocks of the launch, and threads of a block.
    pub(super) grid: Grid,
    /// Whether all blocks are alive at once, so that they can wait for each other.
    together: bool,
    /// Memory with which the blocks wait for each other.
    workspace: [AtomicU64; 2],
    /// What the functions of the back end work on that the kernel calls.
    pub(super) system: Arc<System>,
    parameters: Vec<u64>,
    stop: Arc<AtomicBool>,
    failed: AtomicBool,
    next: AtomicU64,
    blocks: u64,
    began: Instant,
    /// When the last block was claimed.
    claimed: OnceLock<Instant>,
    progress: Mutex<Progress>,
    idle: Condvar,
}

/// What a launch sees of its address space: snapshots from its start.
#[derive(Debug)]
pub(crate) struct Visible {
    /// The mappings.
    pub(crate) table: Arc<Table>,
    /// The textures and surfaces.
    pub(crate) textures: Arc<TextureTable>,
}

/// What a launch has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchOutcome {
    /// Instructions executed by all threads together.
    pub(crate) thread_instructions: u64,
    /// What the launch has taken of the host's cores.
    pub(crate) usage: Usage,
    /// The first fault, which ended the launch.
    pub(crate) fault: Option<Fault>,
}

#[derive(Debug, Default)]
struct Progress {
    helpers: usize,
    outcome: LaunchOutcome,
}

impl Launch {
    /// Creates a launch. The caller has checked shape and parameters.
    pub(crate) fn new(
        program: Arc<Program>,
        visible: Visible,
        shape: LaunchShape,
        parameters: &[u8],
        stop: Arc<AtomicBool>,
        multiprocessors: Multiprocessors,
        system: Arc<System>,
    ) -> Self {
        let mut words = vec![0; parameters.len().div_ceil(8).max(1)];
        for (word, bytes) in words.iter_mut().zip(parameters.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        let mut grid = Grid::new(shape, multiprocessors);
        let together = program.meets && fits_together(&program, &shape);
        if together {
            grid.workspace = address::GRID.start;
        }
        Self {
            program,
            visible,
            blocks: grid.blocks(),
            together,
            workspace: Default::default(),
            grid,
            system,
            parameters: words,
            stop,
            failed: AtomicBool::new(false),
            next: AtomicU64::new(0),
            began: Instant::now(),
            claimed: OnceLock::new(),
            progress: Mutex::default(),
            idle: Condvar::new(),
        }
    }

    /// Returns the launch with all blocks alive at once. The caller has checked that they may be
    /// ([`fits_together`]).
    pub(crate) fn cooperative(mut self) -> Self {
        self.together = true;
        self.grid.workspace = address::GRID.start;
        self
    }

    /// Returns whether one host thread runs all blocks at once.
    pub(crate) fn is_together(&self) -> bool {
        self.together
    }

    /// Returns the memory with which the blocks wait for each other: zeros when the launch begins.
    pub(super) fn workspace_area(&self) -> Area {
        let bytes = if self.together {
            size_of_val(&self.workspace)
        } else {
            0
        };
        Area {
            // Kernels change it, which atomics allow.
            base: self.workspace.as_ptr().cast_mut().cast(),
            bytes: bytes as u32,
        }
    }

    /// Returns the number of blocks of the grid.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns whether a host thread that comes now finds a block to run.
    pub(crate) fn has_blocks(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.blocks && !self.is_stopped()
    }

    /// Returns whether to end early: the session ends, or a block has faulted.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Returns the bytes of static and dynamic shared memory of a block; the sum has been checked.
    pub(super) fn shared_bytes(&self) -> u32 {
        match self.grid.shape.shared_bytes {
            0 => self.program.shared_bytes,
            dynamic => self.program.dynamic_shared_offset + dynamic,
        }
    }

    /// Returns where the parameters of the kernel are.
    pub(super) fn parameter_area(&self) -> Area {
        Area {
            base: self.parameters.as_ptr().cast_mut().cast(),
            bytes: self.program.parameter_bytes,
        }
    }

    /// Notes that a host thread begins to work on the launch, until the shift is dropped.
    pub(super) fn begin_shift(&self) -> Shift<'_> {
        self.progress.lock().helpers += 1;
        Shift {
            launch: self,
            began: Instant::now(),
            began_ns: clock::thread_ns(),
            thread_instructions: 0,
        }
    }

    /// Waits until no thread runs a block any more, and returns what the launch has done. The
    /// caller calls this when no block is left to claim. Until the last block was claimed, the
    /// launch had work for all `units` of the device.
    pub(crate) fn wait(&self, units: u64) -> LaunchOutcome {
        let mut progress = self.progress.lock();
        self.idle.wait_while(&mut progress, |p| p.helpers != 0);
        let mut outcome = std::mem::take(&mut progress.outcome);
        let ended = Instant::now();
        let claimed = self.claimed.get().copied().unwrap_or(ended);
        let wide_ns = nanoseconds(self.began, claimed).saturating_mul(units.min(self.blocks));
        outcome.usage.elapsed_ns = nanoseconds(self.began, ended);
        outcome.usage.wanted_ns += wide_ns;
        outcome
    }

    /// Takes the next block. `None` when none is left, or when the launch ends early.
    pub(super) fn claim(&self) -> Option<[u32; 3]> {
        if self.is_stopped() {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index + 1 == self.blocks {
            self.claimed.get_or_init(Instant::now);
        }
        (index < self.blocks).then(|| self.grid.position(index))
    }

    /// Ends the launch with a fault, unless another block was first.
    pub(super) fn fail(&self, fault: &BlockFault) {
        self.failed.store(true, Ordering::Relaxed);
        let line = self.program.code[fault.pc as usize].line;
        let described = fault.describe(&self.program.name, line, self.grid.shape.block);
        let mut progress = self.progress.lock();
        progress.outcome.fault.get_or_insert(described);
    }
}

/// The time that a host thread works on a launch. Its end is noted even if the thread panics.
#[derive(Debug)]
pub(super) struct Shift<'l> {
    launch: &'l Launch,
    /// When the thread began.
    pub(super) began: Instant,
    /// Processor time of the thread when it began.
    began_ns: u64,
    /// Thread-instructions that the host thread has executed.
    pub(super) thread_instructions: u64,
}

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        // While blocks were left, the launch wanted more than it had: see `Launch::wait`.
        let claimed = self.launch.claimed.get();
        let alone_since = claimed.map(|claimed| self.began.max(*claimed));
        let usage = Usage {
            busy_ns: clock::thread_ns().saturating_sub(self.began_ns),
            elapsed_ns: 0,
            wanted_ns: alone_since.map_or(0, |since| nanoseconds(since, Instant::now())),
        };
        let mut progress = self.launch.progress.lock();
        if std::thread::panicking() {
            self.launch.failed.store(true, Ordering::Relaxed);
            progress.outcome.fault.get_or_insert_with(|| {
                Fault::new(
                    Status::BackEnd,
                    format!(
                        "kernel `{}`: the back end panicked",
                        self.launch.program.name
                    ),
                )
            });
        }
        progress.helpers -= 1;
        progress.outcome.thread_instructions += self.thread_instructions;
        progress.outcome.usage += usage;
        self.launch.idle.notify_all();
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX)
}

/// Returns whether all blocks of a launch may be alive at once.
pub(crate) fn fits_together(program: &Program, shape: &LaunchShape) -> bool {
    let warps = count(shape.grid).saturating_mul(block_warps(shape));
    warps <= TOGETHER_WARPS_MAX && together_bytes(program, shape) <= TOGETHER_BYTES_MAX
}

/// Returns the bytes that the thread takes that submits a launch, `cooperative` or not.
pub(crate) fn thread_bytes(program: &Program, shape: &LaunchShape, cooperative: bool) -> u64 {
    let together = cooperative || (program.meets && fits_together(program, shape));
    match together {
        true => together_bytes(program, shape),
        false => footprint_bytes(program, shape),
    }
}

/// Returns the bytes that a launch takes whose blocks are all alive at once.
fn together_bytes(program: &Program, shape: &LaunchShape) -> u64 {
    let state = RUNNER_BYTES + WARP_BYTES * block_warps(shape);
    let block_bytes = footprint_bytes(program, shape) + state;
    block_bytes.saturating_mul(count(shape.grid))
}

fn count(sides: [u32; 3]) -> u64 {
    sides.iter().map(|n| u64::from(*n)).product()
}

fn block_warps(shape: &LaunchShape) -> u64 {
    count(shape.block).div_ceil(WARP as u64)
}

/// Returns the bytes of registers, local memory and shared memory that a block of a launch of this
/// shape takes.
pub(crate) fn footprint_bytes(program: &Program, shape: &LaunchShape) -> u64 {
    let threads = shape.block.iter().map(|n| u64::from(*n)).product::<u64>();
    let warps = threads.div_ceil(WARP as u64);
    let shared = u64::from(program.dynamic_shared_offset) + u64::from(shape.shared_bytes);
    u64::from(program.stack.registers) * warps
        + u64::from(program.stack.local) * warps * WARP as u64
        + shared
}
