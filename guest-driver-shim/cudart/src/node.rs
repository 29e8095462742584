//! Nodes of graphs with kernels and memory (CUDA Runtime API, "Graph Management"). Their parameters
//! differ from the driver's: a kernel is the program's function, and copies are
//! `cudaMemcpy3DParms`.

use causeway_cuda_abi::boundary::{In, Out};
use causeway_cuda_abi::error::{Answer, Code};
use causeway_cuda_abi::structures::{
    ConditionalNode, Copy3d, CopyNode, FillNode, FirstKernelNode, KernelNode, NodeParameters,
};
use zerocopy::{FromBytes, FromZeros, Immutable, KnownLayout};

use crate::context::current;
use crate::copy::Direction;
use crate::driver::driver;
use crate::launch::handle;
use crate::library;
use crate::planes::{parameters_of, planes};
use crate::registry;
use crate::shapes::{Copy3dParameters, Extent, Pitched};
use crate::symbol::{from_device, part, to_device};
use crate::table::calls;

// Kernels. The parameters are CUDA_KERNEL_NODE_PARAMS_v1 but for the function.
calls! {
    fn cudaGraphAddKernelNode(node: usize, graph: usize, after: usize, count: usize,
                              parameters: In<FirstKernelNode>) => {
        let parameters = kernel_node(parameters)?;
        driver!(cuGraphAddKernelNode_v2(node, graph, after, count, &raw const parameters))
    };
    fn cudaGraphKernelNodeSetParams(node: usize, parameters: In<FirstKernelNode>) => {
        let parameters = kernel_node(parameters)?;
        driver!(cuGraphKernelNodeSetParams_v2(node, &raw const parameters))
    };
    fn cudaGraphExecKernelNodeSetParams(executable: usize, node: usize,
                                        parameters: In<FirstKernelNode>) => {
        let parameters = kernel_node(parameters)?;
        driver!(cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const parameters))
    };
    fn cudaGraphKernelNodeGetParams(node: usize, into: Out<FirstKernelNode>) => {
        driver!(cuGraphKernelNodeGetParams(node, into))?;
        let mut found = into.get()?;
        found.function = program_function(found.function);
        into.set(found)
    };
}

// Copies.
calls! {
    fn cudaGraphAddMemcpyNode(node: usize, graph: usize, after: usize, count: usize,
                              parameters: In<Copy3dParameters>)
        => add_copy(node, graph, after, count, &planes(parameters.get()?)?);
    fn cudaGraphAddMemcpyNode1D(node: usize, graph: usize, after: usize, count: usize, to: usize,
                                from: usize, bytes: usize, kind: u32) => {
        Direction::of(kind)?;
        add_copy(node, graph, after, count, &line(to, from, bytes)?)
    };
    fn cudaGraphAddMemcpyNodeToSymbol(node: usize, graph: usize, after: usize, count: usize,
                                      symbol: usize, from: usize, bytes: usize, offset: usize,
                                      kind: u32) => {
        to_device(kind)?;
        let to = part(symbol, offset, bytes)?;
        add_copy(node, graph, after, count, &line(to, from, bytes)?)
    };
    fn cudaGraphAddMemcpyNodeFromSymbol(node: usize, graph: usize, after: usize, count: usize,
                                        to: usize, symbol: usize, bytes: usize, offset: usize,
                                        kind: u32) => {
        from_device(kind)?;
        let from = part(symbol, offset, bytes)?;
        add_copy(node, graph, after, count, &line(to, from, bytes)?)
    };
    fn cudaGraphMemcpyNodeSetParams(node: usize, parameters: In<Copy3dParameters>)
        => set_copy(node, &planes(parameters.get()?)?);
    fn cudaGraphMemcpyNodeSetParams1D(node: usize, to: usize, from: usize, bytes: usize,
                                      kind: u32) => {
        Direction::of(kind)?;
        set_copy(node, &line(to, from, bytes)?)
    };
    fn cudaGraphMemcpyNodeSetParamsToSymbol(node: usize, symbol: usize, from: usize, bytes: usize,
                                            offset: usize, kind: u32) => {
        to_device(kind)?;
        set_copy(node, &line(part(symbol, offset, bytes)?, from, bytes)?)
    };
    fn cudaGraphMemcpyNodeSetParamsFromSymbol(node: usize, to: usize, symbol: usize, bytes: usize,
                                              offset: usize, kind: u32) => {
        from_device(kind)?;
        set_copy(node, &line(to, part(symbol, offset, bytes)?, bytes)?)
    };
    fn cudaGraphExecMemcpyNodeSetParams(executable: usize, node: usize,
                                        parameters: In<Copy3dParameters>)
        => change_copy(executable, node, &planes(parameters.get()?)?);
    fn cudaGraphExecMemcpyNodeSetParams1D(executable: usize, node: usize, to: usize, from: usize,
                                          bytes: usize, kind: u32) => {
        Direction::of(kind)?;
        change_copy(executable, node, &line(to, from, bytes)?)
    };
    fn cudaGraphExecMemcpyNodeSetParamsToSymbol(executable: usize, node: usize, symbol: usize,
                                                from: usize, bytes: usize, offset: usize,
                                                kind: u32) => {
        to_device(kind)?;
        change_copy(executable, node, &line(part(symbol, offset, bytes)?, from, bytes)?)
    };
    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(executable: usize, node: usize, to: usize,
                                                  symbol: usize, bytes: usize, offset: usize,
                                                  kind: u32) => {
        from_device(kind)?;
        change_copy(executable, node, &line(to, part(symbol, offset, bytes)?, bytes)?)
    };
    fn cudaGraphMemcpyNodeGetParams(node: usize, into: Out<Copy3dParameters>) => {
        let mut copy = Copy3d::new_zeroed();
        driver!(cuGraphMemcpyNodeGetParams(node, &raw mut copy))?;
        into.set(parameters_of(&copy)?)
    };
}

// Fills, whose parameters are CUDA_MEMSET_NODE_PARAMS, and the rest.
calls! {
    fn cudaGraphAddMemsetNode(node: usize, graph: usize, after: usize, count: usize,
                              parameters: usize) => {
        let context = current()?;
        driver!(cuGraphAddMemsetNode(node, graph, after, count, parameters, context))
    };
    fn cudaGraphMemsetNodeGetParams(node: usize, into: usize)
        = cuGraphMemsetNodeGetParams(node, into);
    fn cudaGraphMemsetNodeSetParams(node: usize, parameters: usize)
        = cuGraphMemsetNodeSetParams(node, parameters);
    fn cudaGraphExecMemsetNodeSetParams(executable: usize, node: usize, parameters: usize) => {
        let context = current()?;
        driver!(cuGraphExecMemsetNodeSetParams(executable, node, parameters, context))
    };
    fn cudaGraphAddMemAllocNode(node: usize, graph: usize, after: usize, count: usize,
                                parameters: usize)
        = cuGraphAddMemAllocNode(node, graph, after, count, parameters);
    fn cudaGraphMemAllocNodeGetParams(node: usize, into: usize)
        = cuGraphMemAllocNodeGetParams(node, into);
    fn cudaGraphConditionalHandleCreate(into: usize, graph: usize, value: u32, flags: u32) => {
        let context = current()?;
        driver!(cuGraphConditionalHandleCreate(into, graph, context, value, flags))
    };
}

// Nodes of any kind.
calls! {
    fn cudaGraphAddNode(node: usize, graph: usize, after: usize, edges: usize, count: usize,
                        parameters: Out<NodeParameters>) => {
        converted(parameters, |parameters| {
            driver!(cuGraphAddNode_v2(node, graph, after, edges, count, parameters))
        })
    };
    fn cudaGraphNodeSetParams(node: usize, parameters: Out<NodeParameters>)
        => converted(parameters, |parameters| driver!(cuGraphNodeSetParams(node, parameters)));
    fn cudaGraphExecNodeSetParams(executable: usize, node: usize,
                                  parameters: Out<NodeParameters>) => {
        converted(parameters, |parameters| {
            driver!(cuGraphExecNodeSetParams(executable, node, parameters))
        })
    };
}

/// Returns the driver's parameters of a node with a kernel of the program.
fn kernel_node(given: In<FirstKernelNode>) -> Answer<KernelNode> {
    let it = given.get()?;
    Ok(KernelNode {
        function: driver_function(handle(it.function)?)?,
        grid: it.grid,
        block: it.block,
        shared_bytes: it.shared_bytes,
        padding: 0,
        parameters: it.parameters,
        extra: it.extra,
        kernel: 0,
        context: 0,
    })
}

/// Returns the driver's function of a kernel in the current context.
fn driver_function(kernel: usize) -> Answer<usize> {
    let mut function = 0_usize;
    driver!(cuKernelGetFunction(&raw mut function, kernel))?;
    Ok(function)
}

/// Returns the host function that stands for a function of the driver in the program. A function
/// that no kernel of the program has is returned unchanged: the program asked the driver for it.
fn program_function(function: usize) -> usize {
    let is_it = |kernel: usize| driver_function(kernel) == Ok(function);
    let registered = registry::loaded().into_iter().chain(library::given());
    let mut known = registered.filter(|(_, kernel)| is_it(*kernel));
    known.next().map_or(function, |(name, _)| name)
}

/// A copy of `bytes` bytes.
fn line(to: usize, from: usize, bytes: usize) -> Answer<Copy3d> {
    // One row needs no pitch, which the driver limits.
    let whole = |address| Pitched {
        address,
        pitch: 0,
        row_bytes: bytes,
        rows: 1,
    };
    planes(Copy3dParameters {
        from: whole(from),
        to: whole(to),
        extent: Extent {
            width: bytes,
            height: 1,
            depth: 1,
        },
        kind: Direction::BY_ADDRESS,
        ..Copy3dParameters::default()
    })
}

fn add_copy(node: usize, graph: usize, after: usize, count: usize, copy: &Copy3d) -> Answer {
    let context = current()?;
    let copy = std::ptr::from_ref(copy);
    driver!(cuGraphAddMemcpyNode(
        node, graph, after, count, copy, context
    ))
}

fn set_copy(node: usize, copy: &Copy3d) -> Answer {
    driver!(cuGraphMemcpyNodeSetParams(node, std::ptr::from_ref(copy)))
}

fn change_copy(executable: usize, node: usize, copy: &Copy3d) -> Answer {
    let context = current()?;
    let copy = std::ptr::from_ref(copy);
    driver!(cuGraphExecMemcpyNodeSetParams(
        executable, node, copy, context
    ))
}

/// `cudaMemcpyNodeParams`
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct CopyNodeParameters {
    flags: u32,
    reserved: [u32; 3],
    copy: Copy3dParameters,
}

/// Calls `operation` with the address of the driver's parameters of a node, which say more of some
/// kinds: a context. Those of other kinds are the runtime's. They stay in place, for results go
/// there, too.
pub fn converted(given: Out<NodeParameters>, operation: impl Fn(usize) -> Answer) -> Answer {
    /// `enum cudaGraphNodeType`
    const KERNEL: u32 = 0;
    const COPY: u32 = 1;
    const FILL: u32 = 2;
    const CONDITIONAL: u32 = 13;
    const CONTENT: usize = std::mem::offset_of!(NodeParameters, content);
    let mut parameters = given.get()?;
    let from = given.address_of(0)? + CONTENT;
    let to = parameters.content.as_mut_ptr() as usize;
    match parameters.kind {
        KERNEL => {
            let kernel = kernel_node(In::at(from))?;
            Out::at(to).set(kernel)?;
        }
        COPY => {
            let it: CopyNodeParameters = In::at(from).get()?;
            if it.flags != 0 || it.reserved != [0; 3] {
                return Err(Code::INVALID_VALUE);
            }
            let context = current()?;
            let copy = planes(it.copy)?;
            Out::at(to).set(CopyNode {
                flags: 0,
                reserved: 0,
                context,
                copy,
            })?;
        }
        FILL => {
            let context = current()?;
            Out::at(to + size_of::<FillNode>()).set(context)?;
        }
        CONDITIONAL => {
            let context = current()?;
            let mut node: ConditionalNode = In::at(from).get()?;
            node.context = context;
            Out::at(to).set(node)?;
            operation(&raw const parameters as usize)?;
            // The graphs that it has.
            const BODIES: usize = std::mem::offset_of!(ConditionalNode, bodies);
            let bodies: usize = In::at(to + BODIES).get()?;
            return Out::at(from + BODIES).set(bodies);
        }
        _ => return operation(given.address_of(0)?),
    }
    operation(&raw const parameters as usize)
}
