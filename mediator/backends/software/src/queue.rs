//! Queues that launch kernels.

use std::sync::Arc;

use causeway_cpu_queue::Kernels;
use causeway_mediator::backend::{self, Fault, Kernel};
use causeway_protocol::message::Status;

use crate::exec::{Launch, Multiprocessors};
use crate::module::SoftwareFunction;
use crate::program::Program;
use crate::space_state::SpaceState;

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
    fn launch(&self, launch: &backend::Launch<'_>) -> Result<(), Fault> {
        let program = program_of(launch.kernel())?;
        let launch = Arc::new(Launch::new(
            Arc::clone(program),
            self.state.mappings.table(),
            launch.shape(),
            launch.parameters(),
            Arc::clone(&self.state.stop),
            self.multiprocessors,
        ));
        let outcome = self.state.device.workers.run(&launch)?;
        self.state.device.counts.add(&program.name, &outcome);
        Ok(())
    }
}

fn program_of(function: &Arc<dyn Kernel>) -> Result<&Arc<Program>, Fault> {
    match function.as_any().downcast_ref::<SoftwareFunction>() {
        Some(function) => Ok(function.program()),
        None => Err(Fault::new(
            Status::BadLaunch,
            "the kernel belongs to another back end",
        )),
    }
}
