//! Chains: graphs that execute kernels one after the other. Kernels and parameters can be exchanged
//! before each launch.

use std::sync::Arc;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode};

use super::stream::{Launch, packed};
use super::{Context, CudaError, Driver, KernelHandle, Stream};

/// A CUDA graph that executes a fixed number of kernels, one after the other.
pub(crate) struct LaunchChain {
    context: Arc<Context>,
    /// Kept because a change of the executable graph names the node of this graph.
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
    executable: CUgraphExec,
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
        let mut graph = std::ptr::null_mut();
        // SAFETY: stores a graph, which `drop` destroys. The flags must be zero, and are.
        unsafe { driver.graph_create(&mut graph, 0) }?;
        let mut chain = Self {
            context: Arc::clone(context),
            graph,
            nodes: Vec::with_capacity(length),
            executable: std::ptr::null_mut(),
        };
        for _ in 0..length {
            let mut node = std::ptr::null_mut();
            let before = chain.nodes.last();
            let dependencies = before.map_or(std::ptr::null(), std::ptr::from_ref);
            let count = usize::from(before.is_some());
            with_parameters(function, launch, |parameters| {
                // SAFETY: the dependency is a node of this graph; parameters are copied by the
                // call.
                unsafe {
                    driver.graph_add_kernel_node(&mut node, graph, dependencies, count, parameters)
                }
            })?;
            chain.nodes.push(node);
        }
        // SAFETY: stores an executable graph, which `drop` destroys.
        unsafe { driver.graph_instantiate(&mut chain.executable, graph, 0) }?;
        Ok(chain)
    }

    /// Replaces launch number `index` of the chain by `launch` of the kernel `function`. Executions
    /// of the chain that are under way do not change.
    pub(crate) fn set(
        &mut self,
        index: usize,
        function: KernelHandle,
        launch: &Launch<'_>,
    ) -> Result<(), CudaError> {
        let (driver, node) = (self.context.enter()?, self.nodes[index]);
        with_parameters(function, launch, |parameters| {
            // SAFETY: the node is of the graph that the executable one was made from; parameters
            // are copied.
            unsafe { driver.graph_exec_kernel_node_set_params(self.executable, node, parameters) }
        })
    }

    /// Launches the chain on `stream`. The caller keeps the kernels loaded until the GPU has
    /// executed them.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let driver = self.context.enter()?;
        // SAFETY: both are live, and of one context.
        unsafe { driver.graph_launch(self.executable, stream.raw) }
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

impl Drop for LaunchChain {
    fn drop(&mut self) {
        if !self.executable.is_null() {
            let executable = self.executable;
            // SAFETY: not used again; the driver keeps what launches under way need
            // (cuGraphExecDestroy).
            let destroy = |driver: &Driver| unsafe { driver.graph_exec_destroy(executable) };
            self.context.release("an executable graph", destroy);
        }
        // SAFETY: not used again.
        let destroy = |driver: &Driver| unsafe { driver.graph_destroy(self.graph) };
        self.context.release("a graph", destroy);
    }
}
