//! Chains: graphs that execute kernels one after the other. Kernels and parameters can be exchanged
//! before each launch.

use std::sync::Arc;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraph_st, CUgraphNode};

use super::stream::{Launch, packed};
use super::{Context, CudaError, ExecutableGraph, KernelHandle, Owned, Stream};

/// A CUDA graph that executes a fixed number of kernels, one after the other.
pub(crate) struct LaunchChain {
    executable: ExecutableGraph,
    nodes: Vec<CUgraphNode>,
    /// Kept because a change of the executable graph names a node of this graph.
    _graph: Owned<CUgraph_st>,
}

// SAFETY: the driver does not lock graphs; a chain is used by one thread at a time.
unsafe impl Send for LaunchChain {}

impl LaunchChain {
    /// Returns a chain of `length` launches, all of which are `launch` of the kernel `function`.
    pub(crate) fn new(
        context: &Arc<Context>,
        length: usize,
        function: KernelHandle,
        launch: &Launch<'_>,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        // SAFETY: stores a new graph. The flags must be zero, and are.
        let graph = unsafe { Owned::create(context, |driver, raw| driver.graph_create(raw, 0)) }?;
        let mut nodes = Vec::with_capacity(length);
        for _ in 0..length {
            let mut node = std::ptr::null_mut();
            let before = nodes.last().map_or(std::ptr::null(), std::ptr::from_ref);
            let count = nodes.len().min(1);
            with_parameters(function, launch, |parameters| {
                // SAFETY: the dependency is a node of this graph; parameters are copied by the
                // call.
                unsafe {
                    driver.graph_add_kernel_node(&mut node, graph.raw, before, count, parameters)
                }
            })?;
            nodes.push(node);
        }
        Ok(Self {
            executable: ExecutableGraph::new(&graph)?,
            nodes,
            _graph: graph,
        })
    }

    /// Replaces launch number `index` of the chain by `launch` of the kernel `function`. Executions
    /// of the chain that are under way do not change.
    pub(crate) fn set(
        &mut self,
        index: usize,
        function: KernelHandle,
        launch: &Launch<'_>,
    ) -> Result<(), CudaError> {
        let Owned { context, raw } = &self.executable.0;
        let (driver, node) = (context.enter()?, self.nodes[index]);
        with_parameters(function, launch, |parameters| {
            // SAFETY: the node is of the graph that the executable one was made from; parameters
            // are copied.
            unsafe { driver.graph_exec_kernel_node_set_params(*raw, node, parameters) }
        })
    }

    /// Launches the chain on `stream`. The caller keeps the kernels loaded until the GPU has
    /// executed them.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.launch_graph(&self.executable)
    }
}

/// Calls `call` with a launch in the form that calls for graphs expect.
fn with_parameters(
    function: KernelHandle,
    launch: &Launch<'_>,
    call: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    packed(launch.parameters, |extra| {
        let ([gx, gy, gz], [bx, by, bz]) = (launch.shape.grid, launch.shape.block);
        call(&CUDA_KERNEL_NODE_PARAMS {
            func: function.0,
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: launch.shape.shared_bytes,
            kernelParams: std::ptr::null_mut(),
            extra,
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        })
    })
}
