//! Graphs: work that was captured from a stream, and is launched as one any number of times.

use cudarc::driver::sys::{CUgraph_st, CUgraphExec_st};

use super::{CudaError, Driver, Owned, Stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: other calls of this and other threads do not disturb the
/// capture.
const RELAXED: u32 = 2;

/// A CUDA graph that can be launched, until dropped.
pub(crate) struct ExecutableGraph(pub(super) Owned<CUgraphExec_st>);

impl ExecutableGraph {
    /// Makes `graph` executable. The executable graph does not need `graph` any more.
    pub(super) fn new(graph: &Owned<CUgraph_st>) -> Result<Self, CudaError> {
        // SAFETY: the graph is live; stores a new executable graph.
        let created = unsafe {
            Owned::create(&graph.context, |driver, raw| {
                driver.graph_instantiate(raw, graph.raw, 0)
            })
        };
        created.map(Self)
    }

    /// Captures the work that `enqueue` puts into `stream`, which nothing else uses meanwhile. The
    /// GPU does not execute that work.
    ///
    /// # Errors
    /// The outer error is that of `enqueue`, the inner one the driver's if it does not capture the
    /// work.
    pub(crate) fn capture<E>(
        stream: &Stream,
        enqueue: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<Self, CudaError>, E> {
        let (context, capturing) = (stream.context(), stream.object.raw);
        // SAFETY: the stream is live.
        let begin = |driver: &Driver| unsafe { driver.stream_begin_capture(capturing, RELAXED) };
        if let Err(error) = context.enter().and_then(begin) {
            return Ok(Err(error));
        }
        let enqueued = enqueue();
        // SAFETY: stores a new graph; if the capture failed, it returns an error and stores none
        // (cuStreamEndCapture).
        let graph = unsafe {
            Owned::create(context, |driver, raw| {
                driver.stream_end_capture(capturing, raw)
            })
        };
        enqueued?;
        Ok(graph.and_then(|graph| Self::new(&graph)))
    }
}
