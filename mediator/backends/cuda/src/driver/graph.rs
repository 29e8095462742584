//! Graphs: work that was captured from a stream, and is launched as one any number of times.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use super::{Context, CudaError, Driver, Stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: other calls of this and other threads do not disturb the
/// capture.
const RELAXED: u32 = 2;

/// A CUDA graph that can be launched, until dropped.
pub(crate) struct ExecutableGraph {
    context: Arc<Context>,
    pub(super) raw: CUgraphExec,
}

// SAFETY: the driver does not lock graphs; a caller that launches one from several threads does.
unsafe impl Send for ExecutableGraph {}

/// A graph as it was captured.
struct Graph<'a> {
    context: &'a Context,
    raw: CUgraph,
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        // SAFETY: not used again.
        let destroy = |driver: &Driver| unsafe { driver.graph_destroy(self.raw) };
        self.context.release("a graph", destroy);
    }
}

impl ExecutableGraph {
    /// Captures the work that `enqueue` puts into `stream`, which nothing else uses meanwhile. The
    /// GPU does not execute that work.
    ///
    /// # Errors
    /// The error of `enqueue`, or the driver's error if it does not capture the work.
    pub(crate) fn capture<E: From<CudaError>>(
        stream: &Stream,
        enqueue: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let context = stream.context();
        let driver = context.enter()?;
        // SAFETY: the stream is live.
        unsafe { driver.stream_begin_capture(stream.raw, RELAXED) }?;
        let enqueued = enqueue();
        let mut raw = std::ptr::null_mut();
        // SAFETY: stores a graph, or null if the capture failed.
        let ended = unsafe { driver.stream_end_capture(stream.raw, &mut raw) };
        let graph = Graph { context, raw };
        enqueued?;
        ended?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: stores an executable graph, which `drop` destroys; it does not need the graph any
        // more.
        unsafe { driver.graph_instantiate(&mut raw, graph.raw, 0) }?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        // SAFETY: work under way that launches it keeps it.
        let destroy = |driver: &Driver| unsafe { driver.graph_exec_destroy(self.raw) };
        self.context.release("an executable graph", destroy);
    }
}
