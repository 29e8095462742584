//! Launches of kernels, and what each kernel has done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_cpu_queue::Kernels;
use causeway_mediator::backend::{Fault, Function, LaunchShape};
use causeway_protocol::message::Status;

use crate::exec::{Launch, LaunchOutcome, footprint_bytes};
use crate::lower::SHARED_BYTES_MAX;
use crate::module::SoftwareFunction;
use crate::program::Program;
use crate::space::SpaceState;

/// Registers, local and shared memory of a block, at most.
const BLOCK_FOOTPRINT_MAX: u64 = 64 << 20;
/// Largest grid in x, y, z (CUDA programming guide, "Technical Specifications").
const GRID_MAX: [u32; 3] = [(1 << 31) - 1, 65535, 65535];
/// Largest block in x, y, z.
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
/// Kernels that counts are kept for, at most.
const COUNTS_MAX: usize = 1024;

/// What the launches of one kernel have done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchCount {
    /// Name of the kernel.
    pub kernel: String,
    /// Launches that ended well.
    pub launches: u64,
    /// Instructions executed, counted once for each thread that executed them.
    pub thread_instructions: u64,
    /// Time that cores spent on it, summed over the cores, in nanoseconds.
    pub busy_ns: u64,
}

/// Counts of all kernels of a back end.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    kernels: Mutex<HashMap<String, LaunchCount>>,
}

impl Counts {
    fn add(&self, kernel: &str, outcome: &LaunchOutcome) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if !kernels.contains_key(kernel) {
            if kernels.len() == COUNTS_MAX {
                return;
            }
            let count = LaunchCount {
                kernel: kernel.to_owned(),
                ..LaunchCount::default()
            };
            kernels.insert(kernel.to_owned(), count);
        }
        if let Some(count) = kernels.get_mut(kernel) {
            count.launches += 1;
            count.thread_instructions += outcome.thread_instructions;
            count.busy_ns += outcome.busy_ns;
        }
    }

    /// All counts, by name.
    pub(crate) fn all(&self) -> Vec<LaunchCount> {
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<LaunchCount> = kernels.values().cloned().collect();
        all.sort_by(|a, b| a.kernel.cmp(&b.kernel));
        all
    }
}

/// Where the kernels of a queue find themselves. The engine has no multiprocessors: this is what they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// First of those that blocks are dealt to, one by one: `%smid`.
    pub first: u32,
    /// How many blocks are dealt to; at least 1.
    pub count: u32,
    /// How many the device has: `%nsmid`.
    pub of: u32,
}

impl Default for Multiprocessors {
    fn default() -> Self {
        Self {
            first: 0,
            count: 1,
            of: 1,
        }
    }
}

/// The kernels of a queue.
pub(crate) struct SoftwareKernels {
    state: Arc<SpaceState>,
    multiprocessors: Multiprocessors,
}

impl SoftwareKernels {
    /// Kernels that see the mappings of `state`.
    pub(crate) fn new(state: Arc<SpaceState>, multiprocessors: Multiprocessors) -> Self {
        Self {
            state,
            multiprocessors,
        }
    }
}

impl Kernels for SoftwareKernels {
    fn launch(
        &self,
        function: &Arc<dyn Function>,
        shape: LaunchShape,
        parameters: &[u8],
    ) -> Result<(), Fault> {
        let program = program_of(function)?;
        check(program, &shape, parameters)?;
        let launch = Arc::new(Launch::new(
            Arc::clone(program),
            self.state.mappings.table(),
            shape,
            parameters,
            Arc::clone(&self.state.stop),
            self.multiprocessors,
        ));
        let outcome = self.state.device.workers.run(&launch)?;
        self.state.device.counts.add(&program.name, &outcome);
        Ok(())
    }
}

fn program_of(function: &Arc<dyn Function>) -> Result<&Arc<Program>, Fault> {
    match function.as_any().downcast_ref::<SoftwareFunction>() {
        Some(function) => Ok(function.program()),
        None => Err(Fault {
            status: Status::BadLaunch,
            text: String::from("the kernel belongs to another back end"),
        }),
    }
}

/// What [`causeway_mediator::backend::Queue::submit`] would say to a launch before it executes it.
///
/// # Errors
/// `BadParameters` and `BadLaunch`.
pub fn check_launch(
    function: &Arc<dyn Function>,
    shape: LaunchShape,
    parameters: &[u8],
) -> Result<(), Fault> {
    check(program_of(function)?, &shape, parameters)
}

/// Refuses a launch that the device, or the kernel, cannot have.
fn check(program: &Program, shape: &LaunchShape, parameters: &[u8]) -> Result<(), Fault> {
    let name = &program.name;
    if parameters.len() != program.parameter_bytes as usize {
        return Err(Fault {
            status: Status::BadParameters,
            text: format!(
                "kernel `{name}` wants {} bytes of parameters, not {}",
                program.parameter_bytes,
                parameters.len()
            ),
        });
    }
    match problem(program, shape) {
        None => Ok(()),
        Some(text) => Err(Fault {
            status: Status::BadLaunch,
            text: format!("kernel `{name}`: {text}"),
        }),
    }
}

fn problem(program: &Program, shape: &LaunchShape) -> Option<String> {
    let exceeds = |given: [u32; 3], max: [u32; 3]| {
        given.contains(&0) || given.iter().zip(max).any(|(given, max)| *given > max)
    };
    if exceeds(shape.grid, GRID_MAX) {
        return Some(format!("grid {:?} is not within {GRID_MAX:?}", shape.grid));
    }
    if exceeds(shape.block, BLOCK_MAX) {
        return Some(format!(
            "block {:?} is not within {BLOCK_MAX:?}",
            shape.block
        ));
    }
    // Within the limits above, the product fits 32 bits.
    let threads: u32 = shape.block.iter().product();
    if threads > program.threads_max {
        return Some(format!(
            "a block of {threads} threads; the kernel allows {}",
            program.threads_max
        ));
    }
    if let Some(required) = program.required_threads
        && required != shape.block
    {
        return Some(format!("block {:?}; it requires {required:?}", shape.block));
    }
    let shared = u64::from(program.dynamic_shared_offset) + u64::from(shape.shared_bytes);
    if shared > u64::from(SHARED_BYTES_MAX) {
        return Some(format!(
            "{shared} bytes of shared memory; a block has {SHARED_BYTES_MAX} at most"
        ));
    }
    let bytes = footprint_bytes(program, shape);
    (bytes > BLOCK_FOOTPRINT_MAX).then(|| {
        format!(
            "registers, local and shared memory of a block take {bytes} bytes; \
             {BLOCK_FOOTPRINT_MAX} are possible"
        )
    })
}
