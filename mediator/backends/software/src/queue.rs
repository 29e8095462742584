//! Queues that launch kernels, and the checks of a launch.

use std::sync::Arc;

use causeway_cpu_queue::Kernels;
use causeway_mediator::backend::{Fault, Function, LaunchShape};
use causeway_protocol::message::Status;

use crate::exec::{Launch, Multiprocessors, footprint_bytes};
use crate::limits::SHARED_BYTES_MAX;
use crate::module::SoftwareFunction;
use crate::program::Program;
use crate::space_state::SpaceState;

/// Registers, local and shared memory of a block, at most.
const BLOCK_FOOTPRINT_MAX: u64 = 64 << 20;
/// Largest grid in x, y, z (CUDA programming guide, "Technical Specifications").
const GRID_MAX: [u32; 3] = [(1 << 31) - 1, 65535, 65535];
/// Largest block in x, y, z.
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

/// The kernels of a queue.
#[derive(Debug)]
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
