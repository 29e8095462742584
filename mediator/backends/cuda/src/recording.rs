//! Recordings: graphs that were captured from a stream of their own.

use std::any::Any;
use std::sync::Arc;

use causeway_mediator::backend::{Array, BackendError, Fault, Kernel, Recorded, Recording, Work};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use crate::driver::ExecutableGraph;
use crate::error::{self, failed, refused};
use crate::space::lookup::{Standing, Use};
use crate::space::state::SpaceState;
use crate::work::Enqueuer;
use crate::work::array::memory_access;

/// Estimates of the GPU memory that a graph and each of its nodes take, in bytes: the driver does
/// not tell.
const GRAPH_BYTES: u64 = 64 << 10;
const NODE_BYTES: u64 = 2 << 10;

/// A recorded sequence of work, as a CUDA graph that a queue launches.
pub(crate) struct CudaRecording {
    state: Arc<SpaceState>,
    /// Launched under the lock: the driver does not lock graphs. Dropped before its kernels and
    /// arrays.
    graph: Mutex<ExecutableGraph>,
    /// The kernels that it launches.
    _kernels: Vec<Arc<dyn Kernel>>,
    /// The arrays that it copies to or from.
    _arrays: Vec<Arc<dyn Array>>,
    /// The addresses in it, and what is done there.
    uses: Standing,
    bytes: u64,
}

/// Captures `work` as a graph in the address space `state`, and returns the recording.
pub(crate) fn record(
    state: &Arc<SpaceState>,
    work: &[Recorded],
) -> Result<CudaRecording, BackendError> {
    let mut enqueuer = Enqueuer::for_recording(state).map_err(|e| failed("create a stream", e))?;
    let releases = work.iter().any(|work| match work {
        Recorded::Launch(_) | Recorded::Array(_) => false,
        Recorded::Memory(work) => work.is_release(),
    });
    // Before the addresses are checked: what changes afterwards has them checked again.
    let generation = state.table.generation();
    enqueuer.refresh();
    let graph = match capture(&mut enqueuer, work) {
        // Not every driver captures stores of a stream; a kernel does the same. What is at fault in
        // the work itself is so again.
        Err(_) if releases && state.maker.context.driver().poison().is_none() => {
            enqueuer = Enqueuer::for_recording(state).map_err(|e| failed("create a stream", e))?;
            enqueuer.refresh();
            enqueuer.store_by_kernels();
            capture(&mut enqueuer, work)
        }
        outcome => outcome,
    }?;
    let kernels = work.iter().filter_map(|work| match work {
        Recorded::Launch(launch) => Some(Arc::clone(launch.kernel())),
        Recorded::Memory(_) | Recorded::Array(_) => None,
    });
    let arrays = work.iter().filter_map(|work| match work {
        Recorded::Array(copy) => Some(Arc::clone(copy.array())),
        Recorded::Launch(_) | Recorded::Memory(_) => None,
    });
    Ok(CudaRecording {
        state: Arc::clone(state),
        graph: Mutex::new(graph),
        _kernels: kernels.collect(),
        _arrays: arrays.collect(),
        uses: Standing::new(work.iter().flat_map(uses).collect(), generation),
        bytes: GRAPH_BYTES + NODE_BYTES * work.len() as u64,
    })
}

fn capture(enqueuer: &mut Enqueuer, work: &[Recorded]) -> Result<ExecutableGraph, BackendError> {
    let stream = Arc::clone(&enqueuer.stream);
    let captured = ExecutableGraph::capture(&stream, || {
        work.iter()
            .try_for_each(|work| enqueuer.enqueue(&work.as_work()))
    });
    captured
        .map_err(|fault| refused(fault.status, fault.text))?
        .map_err(|error| failed("record a command buffer", error))
}

/// Returns the ranges that a piece of work reads and writes, but for those of kernels.
fn uses(work: &Recorded) -> Vec<Use> {
    let one = |(address, bytes), access| Use {
        address,
        bytes,
        access,
        may_be_apart: false,
        what: "recorded work",
    };
    match work.as_work() {
        Work::Launch(_) | Work::Replay { .. } => Vec::new(),
        Work::Array(copy) => vec![one(copy.memory(), memory_access(&copy))],
        Work::Memory(work) => {
            let read = work.read().map(|range| one(range, Access::Read));
            let written = one(work.written(), Access::ReadWrite);
            read.into_iter().chain([written]).collect()
        }
    }
}

impl CudaRecording {
    /// Launches the recording on the stream of `enqueuer`, after the work that is there already.
    pub(crate) fn replay(&self, enqueuer: &mut Enqueuer) -> Result<(), Fault> {
        if !Arc::ptr_eq(&self.state, &enqueuer.state) {
            return Err(Fault::new(
                Status::BadHandle,
                "the recording belongs to another address space",
            ));
        }
        // This only compares a number, unless an address has lost rights.
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
