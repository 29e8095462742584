//! Calls that make and end graphs and their nodes.

use std::sync::Arc;

use crate::boundary::{In, Out};
use crate::driver::{Driver, call, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::memory_nodes::{of_allocation, of_free};
use crate::graph::node::Kind;
use crate::graph::{self, Graph, Node};
use crate::structures::{
    AllocationNode, BatchNode, Copy3d, FillNode, FirstKernelNode, HostNode, KernelNode,
};
use crate::{context, event, memory, stream_memory};

#[unsafe(no_mangle)]
extern "C" fn cuGraphCreate(graph: Out<usize>, flags: u32) -> u32 {
    call(|driver| {
        if graph.is_null() || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = Graph::new();
        graph::adopt(driver, &made);
        graph.set(made.handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: usize) -> u32 {
    call_in_context(|driver, _| {
        let found = graph::find(driver, graph)?;
        if found.is_child() {
            return Err(Code::INVALID_VALUE);
        }
        graph::forget(driver, &found);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphClone(clone: Out<usize>, original: usize) -> u32 {
    call_in_context(|driver, _| {
        if clone.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let original = graph::find(driver, original)?;
        original.check_no_memory()?;
        let made = original.duplicate(false);
        graph::adopt(driver, &made);
        clone.set(made.handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroyNode(node: usize) -> u32 {
    call_in_context(|driver, _| {
        let owner = graph::owner(driver, node)?;
        let is_memory = |node: &Node| matches!(node.kind, Kind::Allocate(_) | Kind::Free { .. });
        if owner.look(node, is_memory)? {
            return Err(Code::NOT_SUPPORTED);
        }
        let removed = owner.remove(node)?;
        driver.graphs.lock().owners.remove(&node);
        let within = removed.kind.graphs().iter();
        within.for_each(|graph| graph::forget(driver, graph));
        Ok(())
    })
}

/// Where a node goes and what it is behind.
pub(super) struct Place {
    pub(super) node: Out<usize>,
    pub(super) graph: usize,
    pub(super) dependencies: In<usize>,
    pub(super) count: usize,
}

impl Place {
    /// Adds the node that `make` makes for the graph.
    pub(super) fn fill(self, make: impl FnOnce(&'static Driver, &Graph) -> Answer<Kind>) -> u32 {
        call_in_context(|driver, _| {
            if self.node.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let graph = graph::find(driver, self.graph)?;
            let dependencies = graph.chosen(self.dependencies, self.count)?;
            let kind = make(driver, &graph)?;
            let within = kind.graphs().to_vec();
            let node = graph.add(kind, &dependencies)?;
            let owner = Arc::downgrade(&graph);
            driver.graphs.lock().owners.insert(node, owner);
            within.iter().for_each(|graph| graph::adopt(driver, graph));
            self.node.set(node)
        })
    }
}

/// Declares a call that adds a node.
macro_rules! nodes {
    ($($name:ident($($given:ident: $type:ty),*) = $make:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(
                node: Out<usize>,
                graph: usize,
                dependencies: In<usize>,
                count: usize,
                $($given: $type,)*
            ) -> u32 {
                let place = Place { node, graph, dependencies, count };
                let make: fn(&'static Driver, $($type),*) -> Answer<Kind> = $make;
                place.fill(|driver, _| make(driver, $($given),*))
            }
        )*
    };
}

nodes! {
    cuGraphAddKernelNode(given: In<FirstKernelNode>) =
        |driver, given| Kind::of_kernel(driver, of_first(given.get()?));
    cuGraphAddKernelNode_v2(given: In<KernelNode>) =
        |driver, given| Kind::of_kernel(driver, given.get()?);
    cuGraphAddMemcpyNode(given: In<Copy3d>, context: usize) =
        |driver, given, _| of_copy(driver, given.get()?);
    cuGraphAddMemsetNode(given: In<FillNode>, context: usize) =
        |driver, given, _| of_fill(driver, given.get()?);
    cuGraphAddHostNode(given: In<HostNode>) =
        |driver, given| Kind::of_host(driver, given.get()?);
    cuGraphAddBatchMemOpNode(given: In<BatchNode>) =
        |driver, given| of_batch(driver, given.get()?);
    cuGraphAddEmptyNode() = |_| Ok(Kind::Empty);
    cuGraphAddEventRecordNode(event: usize) =
        |driver, event| event::find_given(driver, event).map(Kind::Record);
    cuGraphAddEventWaitNode(event: usize) =
        |driver, event| event::find_given(driver, event).map(Kind::Wait);
    cuGraphAddChildGraphNode(child: usize) =
        |driver, child| of_graph(driver, child);
    cuGraphAddMemAllocNode(given: Out<AllocationNode>) =
        |driver, given| context::with_current(driver, |found| of_allocation(driver, found?, given));
    cuGraphAddMemFreeNode(address: u64) = |driver, address| of_free(driver, address);
}

/// Returns a node that is a copy of a graph.
pub(super) fn of_graph(driver: &Driver, child: usize) -> Answer<Kind> {
    let child = graph::find(driver, child)?;
    child.check_no_memory()?;
    Ok(Kind::Child(child.duplicate(true)))
}

/// Returns the parameters of a kernel node as later versions of the API have them.
pub(crate) const fn of_first(given: FirstKernelNode) -> KernelNode {
    KernelNode {
        function: given.function,
        grid: given.grid,
        block: given.block,
        shared_bytes: given.shared_bytes,
        padding: 0,
        parameters: given.parameters,
        extra: given.extra,
        kernel: 0,
        context: 0,
    }
}

/// Returns a copy node.
pub(crate) fn of_copy(driver: &'static Driver, given: Copy3d) -> Answer<Kind> {
    Ok(Kind::Copy {
        work: memory::copy_work(driver, &given)?,
        given: Some(Box::new(given)),
    })
}

/// Returns a fill node.
pub(crate) fn of_fill(driver: &Driver, given: FillNode) -> Answer<Kind> {
    Ok(Kind::Fill {
        work: memory::fill_work(driver, &given)?,
        given: Some(given),
    })
}

/// Returns a node of operations on words of memory.
pub(crate) fn of_batch(driver: &'static Driver, given: BatchNode) -> Answer<Kind> {
    let operations = In::at(given.operations);
    let operations = stream_memory::read(given.count, operations, given.flags)?;
    Ok(Kind::Batch {
        work: stream_memory::batch(driver, &operations)?,
        operations,
    })
}
