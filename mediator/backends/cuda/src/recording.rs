//! Recordings: graphs that were captured from a stream of their own.

use std::any::Any;
use std::sync::Arc;

use causeway_mediator::backend::{BackendError, Fault, Kernel, MemoryWork, Recorded, Recording};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use crate::driver::{CudaError, ExecutableGraph};
use crate::error::{self, failed, refused};
use crate::space::lookup::{Standing, Use};
use crate::space::state::SpaceState;
use crate::work::Enqueuer;

/// What a graph and each of its nodes is taken to need of the GPU in bytes: what the driver needs
/// it does not say.
const GRAPH_BYTES: u64 = 64 << 10;
const NODE_BYTES: u64 = 2 << 10;

/// A sequence of work, ready to be launched.
pub(crate) struct CudaRecording {
    state: Arc<SpaceState>,
    /// Launched under the lock: the driver does not lock graphs. Dropped before its kernels.
    graph: Mutex<ExecutableGraph>,
    /// The kernels that it launches.
    _functions: Vec<Arc<dyn Kernel>>,
    /// The addresses in it, and what is done there.
    uses: Standing,
    bytes: u64,
}

/// What went wrong while work was captured.
enum CaptureError {
    Driver(CudaError),
    Work(Fault),
}

impl From<CudaError> for CaptureError {
    fn from(error: CudaError) -> Self {
        Self::Driver(error)
    }
}

impl From<CaptureError> for BackendError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Driver(error) => failed("record a command buffer", error),
            CaptureError::Work(fault) => refused(fault.status, fault.text),
        }
    }
}

/// Makes a recording of `work`.
pub(crate) fn record(
    state: &Arc<SpaceState>,
    work: &[Recorded],
) -> Result<CudaRecording, BackendError> {
    let mut enqueuer = Enqueuer::new(state).map_err(|e| failed("create a stream", e))?;
    let memory_work = || {
        work.iter().filter_map(|work| match work {
            Recorded::Launch(_) => None,
            Recorded::Memory(work) => Some(work),
        })
    };
    let stamps = memory_work().any(|w| matches!(w, MemoryWork::Timestamp { .. }));
    let releases = memory_work().any(|w| matches!(w, MemoryWork::Release { .. }));
    if stamps || releases {
        // Now, because a module may not be loadable within a capture.
        state.words()?;
    }
    // Before the addresses are checked: what changes afterwards has them checked again.
    let generation = state.table.generation();
    enqueuer.refresh();
    let graph = match capture(&mut enqueuer, work) {
        // Not every driver captures stores of a stream; a kernel does the same. What is at fault in
        // the work itself is so again.
        Err(_) if releases && state.maker.context.driver().poison().is_none() => {
            enqueuer = Enqueuer::new(state).map_err(|e| failed("create a stream", e))?;
            enqueuer.refresh();
            enqueuer.store_by_kernels();
            capture(&mut enqueuer, work)
        }
        outcome => outcome,
    }?;
    let functions = work.iter().filter_map(|work| match work {
        Recorded::Launch(launch) => Some(Arc::clone(launch.kernel())),
        Recorded::Memory(_) => None,
    });
    Ok(CudaRecording {
        state: Arc::clone(state),
        graph: Mutex::new(graph),
        _functions: functions.collect(),
        uses: Standing::new(memory_work().flat_map(uses).collect(), generation),
        bytes: GRAPH_BYTES + NODE_BYTES * work.len() as u64,
    })
}

fn capture(enqueuer: &mut Enqueuer, work: &[Recorded]) -> Result<ExecutableGraph, CaptureError> {
    let stream = Arc::clone(&enqueuer.stream);
    ExecutableGraph::capture(&stream, || {
        work.iter()
            .try_for_each(|work| enqueuer.enqueue(&work.as_work()))
            .map_err(CaptureError::Work)
    })
}

/// Returns the ranges that a piece of work reads and writes.
fn uses(work: &MemoryWork) -> impl Iterator<Item = Use> + use<> {
    let one = |(address, bytes), access| Use {
        address,
        bytes,
        access,
        what: "recorded work",
    };
    let read = work.read().map(|range| one(range, Access::Read));
    read.into_iter()
        .chain([one(work.written(), Access::ReadWrite)])
}

impl CudaRecording {
    /// Launches it, after all that was enqueued before.
    pub(crate) fn replay(&self, enqueuer: &mut Enqueuer) -> Result<(), Fault> {
        if !Arc::ptr_eq(&self.state, &enqueuer.state) {
            return Err(Fault::new(
                Status::BadHandle,
                "the recording belongs to another address space",
            ));
        }
        // A look at a number, unless somebody lost rights.
        enqueuer.check_again(&self.uses)?;
        let graph = self.graph.lock();
        let launched = enqueuer.stream.launch_graph(&graph);
        launched.map_err(|e| error::fault(&e, Some("those of a recording")))
    }
}

impl Recording for CudaRecording {
    /// Returns an estimate: 64 KiB, and 2 KiB for each piece of work.
    fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
