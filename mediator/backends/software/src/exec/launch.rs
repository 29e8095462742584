//! A launch: a grid of blocks that host threads take one by one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_cpu_queue::Table;
use causeway_mediator::backend::{Fault, LaunchShape};
use causeway_protocol::message::Status;

pub(crate) use super::arena::ThreadArena;
use super::block::{BlockFault, BlockRunner, need};
use super::context::{Area, Trouble};
use crate::clock;
use crate::program::{FrameBytes, Program, WARP};
use crate::queue::Multiprocessors;

/// A kernel with its grid, its parameters, and the mappings that it sees.
pub(crate) struct Launch {
    /// The kernel.
    pub(super) program: Arc<Program>,
    /// Mappings when the launch began.
    pub(super) table: Arc<Table>,
    /// Dimensions.
    pub(super) shape: LaunchShape,
    /// Where the blocks find themselves.
    pub(super) multiprocessors: Multiprocessors,
    /// Thread indices in x, y, z for each warp.
    pub(super) threads: Vec<[[u32; WARP]; 3]>,
    parameters: Vec<u64>,
    stop: Arc<AtomicBool>,
    failed: AtomicBool,
    next: AtomicU64,
    blocks: u64,
    progress: Mutex<Progress>,
    idle: Condvar,
}

/// What a launch has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchOutcome {
    /// Instructions, counted once for each thread that executed them.
    pub(crate) thread_instructions: u64,
    /// Time that host threads spent on it, in nanoseconds.
    pub(crate) busy_ns: u64,
}

#[derive(Default)]
struct Progress {
    helpers: usize,
    outcome: LaunchOutcome,
    fault: Option<Fault>,
}

impl Launch {
    /// A launch whose shape and parameters have been checked.
    pub(crate) fn new(
        program: Arc<Program>,
        table: Arc<Table>,
        shape: LaunchShape,
        parameters: &[u8],
        stop: Arc<AtomicBool>,
        multiprocessors: Multiprocessors,
    ) -> Self {
        let mut words = vec![0; parameters.len().div_ceil(8).max(1)];
        for (word, bytes) in words.iter_mut().zip(parameters.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        Self {
            program,
            table,
            multiprocessors,
            threads: thread_indices(shape.block),
            parameters: words,
            stop,
            failed: AtomicBool::new(false),
            next: AtomicU64::new(0),
            blocks: shape.grid.iter().map(|n| u64::from(*n)).product(),
            shape,
            progress: Mutex::default(),
            idle: Condvar::new(),
        }
    }

    /// Blocks of the grid.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether a host thread that comes now finds a block to run.
    pub(crate) fn has_blocks(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.blocks && !self.is_stopped()
    }

    /// Whether to end early: the session ends, or a block has faulted.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.shape.block.iter().product()
    }

    /// Static and dynamic shared memory of a block.
    pub(super) fn shared_bytes(&self) -> u32 {
        shared_bytes(&self.program, &self.shape)
    }

    /// The multiprocessor that a block is dealt to.
    pub(super) fn multiprocessor(&self, block: [u32; 3]) -> u32 {
        let [x, y, _] = self.shape.grid.map(u64::from);
        let [bx, by, bz] = block.map(u64::from);
        let place = (bz * y + by) * x + bx;
        let Multiprocessors { first, count, .. } = self.multiprocessors;
        // The remainder is less than a 32-bit count.
        first + (place % u64::from(count.max(1))) as u32
    }

    /// Registers and local memory for the deepest chain of calls.
    pub(super) fn stack(&self) -> FrameBytes {
        self.program.stack
    }

    /// The parameter block.
    pub(super) fn parameter_area(&self) -> Area {
        Area {
            base: self.parameters.as_ptr().cast_mut().cast(),
            bytes: self.program.parameter_bytes,
        }
    }

    /// Runs blocks until none is left, or until `turn` is over. Any number of threads may do so at once.
    pub(crate) fn work(&self, arena: &mut ThreadArena, turn: Option<Duration>) {
        self.lock().helpers += 1;
        let began = Instant::now();
        let mut shift = Shift {
            launch: self,
            began_ns: clock::thread_ns(),
            thread_instructions: 0,
        };
        let areas = arena.prepare(&self.program.constants, need(self));
        let mut runner = BlockRunner::new(self, areas);
        while let Some(block) = self.claim() {
            if let Err(fault) = runner.run(block) {
                self.fail(&fault);
            }
            if turn.is_some_and(|turn| began.elapsed() > turn) {
                break;
            }
        }
        shift.thread_instructions = runner.instructions();
        drop(runner);
        arena.trim();
    }

    /// Returns when no thread runs a block any more: thread-instructions executed, or the first fault.
    /// The caller has worked itself, so no block is left to be claimed.
    pub(crate) fn wait(&self) -> Result<LaunchOutcome, Fault> {
        let mut progress = self.lock();
        while progress.helpers != 0 {
            progress = self
                .idle
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match progress.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(progress.outcome),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self) -> Option<[u32; 3]> {
        if self.is_stopped() {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= self.blocks {
            return None;
        }
        let (x, y) = (u64::from(self.shape.grid[0]), u64::from(self.shape.grid[1]));
        Some([
            (index % x) as u32,
            (index / x % y) as u32,
            (index / x / y) as u32,
        ])
    }

    fn fail(&self, fault: &BlockFault) {
        self.failed.store(true, Ordering::Relaxed);
        let described = self.describe(fault);
        self.lock().fault.get_or_insert(described);
    }

    fn describe(&self, fault: &BlockFault) -> Fault {
        let [bx, by, bz] = fault.block;
        let mut place = format!("kernel `{}`, block ({bx},{by},{bz})", self.program.name);
        if let Some(thread) = fault.thread {
            let [x, y, _] = self.shape.block;
            let (tx, ty, tz) = (thread % x, thread / x % y, thread / x / y);
            place += &format!(", thread ({tx},{ty},{tz})");
        }
        place += &format!(", line {}", self.program.code[fault.pc as usize].line);
        let (status, what) = match &fault.trouble {
            Trouble::Access {
                address,
                bytes,
                kind,
                reason,
                ..
            } => (
                Status::MemoryFault,
                format!("{} of {bytes} bytes at {address:#x}: {reason}", kind.text()),
            ),
            Trouble::Trap => (Status::KernelFault, String::from("trap")),
            Trouble::CallDepth => (
                Status::KernelFault,
                String::from("calls are nested too deep"),
            ),
            Trouble::Deadlock(text) => (Status::KernelFault, text.clone()),
        };
        Fault {
            status,
            text: format!("{place}: {what}"),
        }
    }
}

/// The time that a host thread works on a launch. Its end is noted whatever happens.
struct Shift<'l> {
    launch: &'l Launch,
    began_ns: u64,
    thread_instructions: u64,
}

impl Drop for Shift<'_> {
    fn drop(&mut self) {
        let busy_ns = clock::thread_ns().saturating_sub(self.began_ns);
        let mut progress = self.launch.lock();
        if std::thread::panicking() {
            self.launch.failed.store(true, Ordering::Relaxed);
            progress.fault.get_or_insert_with(|| Fault {
                status: Status::BackEnd,
                text: format!("kernel `{}`: the back end failed", self.launch.program.name),
            });
        }
        progress.helpers -= 1;
        progress.outcome.thread_instructions += self.thread_instructions;
        progress.outcome.busy_ns += busy_ns;
        self.launch.idle.notify_all();
    }
}

/// Registers, local and shared memory of a block of such a launch, in bytes.
pub(crate) fn footprint_bytes(program: &Program, shape: &LaunchShape) -> u64 {
    let threads = shape.block.iter().map(|n| u64::from(*n)).product::<u64>();
    let warps = threads.div_ceil(WARP as u64);
    let shared = u64::from(program.dynamic_shared_offset) + u64::from(shape.shared_bytes);
    u64::from(program.stack.registers) * warps
        + u64::from(program.stack.local) * warps * WARP as u64
        + shared
}

/// Static and dynamic shared memory that a block of such a launch has. The sum has been checked.
fn shared_bytes(program: &Program, shape: &LaunchShape) -> u32 {
    if shape.shared_bytes == 0 {
        program.shared_bytes
    } else {
        program.dynamic_shared_offset + shape.shared_bytes
    }
}

fn thread_indices(block: [u32; 3]) -> Vec<[[u32; WARP]; 3]> {
    let [x, y, _] = block;
    let threads: u32 = block.iter().product();
    let warps = threads.div_ceil(WARP as u32);
    (0..warps)
        .map(|warp| {
            let thread = |lane: usize| warp * WARP as u32 + lane as u32;
            [
                std::array::from_fn(|lane| thread(lane) % x),
                std::array::from_fn(|lane| thread(lane) / x % y),
                std::array::from_fn(|lane| thread(lane) / x / y),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_numbered_x_first() {
        let warps = thread_indices([5, 3, 4]);
        assert_eq!(warps.len(), 2);
        let at = |thread: usize| {
            let [x, y, z] = warps[thread / 32];
            [x[thread % 32], y[thread % 32], z[thread % 32]]
        };
        assert_eq!(at(0), [0, 0, 0]);
        assert_eq!(at(7), [2, 1, 0]);
        assert_eq!(at(59), [4, 2, 3]);
    }
}
