//! Queues that launch kernels.

use std::sync::Arc;

use causeway_cpu_queue::Kernels;
use causeway_mediator::backend::{self, Fault, Usage, is_cooperative};
use causeway_protocol::message::Status;

use crate::exec::{Launch, Multiprocessors};
use crate::module::SoftwareKernel;
use crate::space_state::SpaceState;

/// Executes the kernels of a queue.
#[derive(Debug)]
pub(crate) struct SoftwareKernels {
    /// The address space, whose mappings kernels see.
    pub(crate) state: Arc<SpaceState>,
    /// The multiprocessors that kernels see.
    pub(crate) multiprocessors: Multiprocessors,
}

impl Kernels for SoftwareKernels {
    fn launch(
        &self,
        launch: &backend::Launch<'_>,
        units: u64,
        usage: &mut Usage,
    ) -> Result<(), Fault> {
        let kernel = launch.kernel().as_any().downcast_ref::<SoftwareKernel>();
        let program = &kernel
            .ok_or_else(|| Fault::new(Status::BadLaunch, "the kernel belongs to another back end"))?
            .program;
        let whole = is_cooperative(&launch.options());
        let launch = Launch::new(
            Arc::clone(program),
            self.state.mappings.table(),
            launch.shape(),
            launch.parameters(),
            Arc::clone(&self.state.stop),
            self.multiprocessors,
            Arc::clone(&self.state.system),
        );
        let launch = Arc::new(if whole { launch.cooperative() } else { launch });
        let outcome = self.state.device.workers.run(&launch, units);
        *usage += outcome.usage;
        if let Some(fault) = outcome.fault {
            return Err(fault);
        }
        self.state.device.counts.add(&program.name, &outcome);
        Ok(())
    }
}
