//! Queues that launch kernels.

use std::sync::Arc;

use causeway_cpu_queue::Kernels;
use causeway_mediator::backend::{self, Array, Fault, Usage, is_cooperative};
use causeway_protocol::message::Status;

use crate::array::SoftwareArray;
use crate::exec::{Launch, Multiprocessors, Visible};
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
            self.visible(),
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

    fn array_address(&self, array: &Arc<dyn Array>) -> Option<u64> {
        SoftwareArray::of(array, &self.state).map(SoftwareArray::address)
    }
}

impl SoftwareKernels {
    /// What a launch sees that begins now. The textures come first: an array is mapped before a
    /// texture of it exists.
    fn visible(&self) -> Visible {
        let textures = self.state.textures.table();
        Visible {
            textures,
            table: self.state.mappings.table(),
        }
    }
}
