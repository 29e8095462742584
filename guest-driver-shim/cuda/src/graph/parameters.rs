//! Calls that read and set the parameters of nodes.

use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::event;
use crate::graph::create::{of_batch, of_copy, of_fill, of_first};
use crate::graph::node::Kind;
use crate::graph::{self, Node};
use crate::host_function::HostWork;
use crate::structures::{BatchNode, Copy3d, FillNode, FirstKernelNode, HostNode, KernelNode};

/// Answers with what `read` finds in a node.
fn get<T>(node: usize, into: Out<T>, read: impl FnOnce(&Kind) -> Answer<T>) -> u32 {
    call_in_context(|driver, _| {
        let owner = graph::owner(driver, node)?;
        let found = owner.look(node, |node: &Node| read(&node.kind))?;
        into.set(found?)
    })
}

/// Gives a node other parameters.
fn set(node: usize, make: impl FnOnce(&'static Driver) -> Answer<Kind>) -> u32 {
    call_in_context(|driver, _| {
        let owner = graph::owner(driver, node)?;
        let kind = make(driver)?;
        owner.replace(node, kind).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetType(node: usize, kind: Out<u32>) -> u32 {
    get(node, kind, |found| Ok(found.number()))
}

/// Returns the parameters of a kernel node. What the pointers in them point to belongs to the node.
fn kernel_node(kind: &Kind) -> Answer<KernelNode> {
    let Kind::Kernel(call) = kind else {
        return Err(Code::INVALID_VALUE);
    };
    Ok(KernelNode {
        function: call.kernel.function,
        grid: call.shape.grid,
        block: call.shape.block,
        shared_bytes: call.shape.shared_bytes,
        padding: 0,
        parameters: match call.addresses.is_empty() {
            true => 0,
            false => call.addresses.as_ptr() as usize,
        },
        extra: 0,
        kernel: 0,
        context: 0,
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeGetParams_v2(node: usize, into: Out<KernelNode>) -> u32 {
    get(node, into, kernel_node)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeGetParams(node: usize, into: Out<FirstKernelNode>) -> u32 {
    get(node, into, |kind| {
        let found = kernel_node(kind)?;
        Ok(FirstKernelNode {
            function: found.function,
            grid: found.grid,
            block: found.block,
            shared_bytes: found.shared_bytes,
            padding: 0,
            parameters: found.parameters,
            extra: found.extra,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeSetParams_v2(node: usize, given: In<KernelNode>) -> u32 {
    set(node, |driver| Kind::of_kernel(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphKernelNodeSetParams(node: usize, given: In<FirstKernelNode>) -> u32 {
    set(node, |driver| {
        Kind::of_kernel(driver, of_first(given.get()?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphMemcpyNodeGetParams(node: usize, into: Out<Copy3d>) -> u32 {
    get(node, into, |kind| match kind {
        Kind::Copy { given, .. } => given.as_deref().copied().ok_or(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphMemcpyNodeSetParams(node: usize, given: In<Copy3d>) -> u32 {
    set(node, |driver| of_copy(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphMemsetNodeGetParams(node: usize, into: Out<FillNode>) -> u32 {
    get(node, into, |kind| match kind {
        Kind::Fill { given, .. } => given.ok_or(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphMemsetNodeSetParams(node: usize, given: In<FillNode>) -> u32 {
    set(node, |driver| of_fill(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphHostNodeGetParams(node: usize, into: Out<HostNode>) -> u32 {
    get(node, into, |kind| match kind {
        Kind::Host(call) => match call.work {
            HostWork::Function { function, argument } => Ok(HostNode {
                function: function as usize,
                argument,
            }),
            _ => Err(Code::NOT_SUPPORTED),
        },
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphHostNodeSetParams(node: usize, given: In<HostNode>) -> u32 {
    set(node, |driver| Kind::of_host(driver, given.get()?))
}

/// Returns the operations, which belong to the node.
#[unsafe(no_mangle)]
extern "C" fn cuGraphBatchMemOpNodeGetParams(node: usize, into: Out<BatchNode>) -> u32 {
    get(node, into, |kind| match kind {
        Kind::Batch { operations, .. } if operations.is_empty() => Err(Code::NOT_SUPPORTED),
        Kind::Batch { operations, .. } => Ok(BatchNode {
            context: 0,
            count: operations.len() as u32,
            padding: 0,
            operations: operations.as_ptr() as usize,
            flags: 0,
            padding_behind: 0,
        }),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphBatchMemOpNodeSetParams(node: usize, given: In<BatchNode>) -> u32 {
    set(node, |driver| of_batch(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphEventRecordNodeGetEvent(node: usize, event: Out<usize>) -> u32 {
    get(node, event, |kind| match kind {
        Kind::Record(event) => Ok(event.handle),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphEventRecordNodeSetEvent(node: usize, event: usize) -> u32 {
    set(node, |driver| {
        event::find_given(driver, event).map(Kind::Record)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphEventWaitNodeGetEvent(node: usize, event: Out<usize>) -> u32 {
    get(node, event, |kind| match kind {
        Kind::Wait(event) => Ok(event.handle),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphEventWaitNodeSetEvent(node: usize, event: usize) -> u32 {
    set(node, |driver| {
        event::find_given(driver, event).map(Kind::Wait)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphChildGraphNodeGetGraph(node: usize, graph: Out<usize>) -> u32 {
    get(node, graph, |kind| match kind {
        Kind::Child(child) => Ok(child.handle),
        _ => Err(Code::INVALID_VALUE),
    })
}
