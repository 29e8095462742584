//! Calls that list the nodes of graphs.

use crate::boundary::Out;
use crate::driver::call_in_context;
use crate::error::{Answer, Code};
use crate::graph::{self, Graph};
use crate::structures::EdgeData;

/// Puts a list, as the API does: only its length if the caller has no room, otherwise as many as
/// fit, zeros behind them, and how many they are.
pub(crate) fn list(found: &[usize], into: Out<usize>, count: Out<usize>) -> Answer {
    if into.is_null() {
        return count.set(found.len());
    }
    let room = count.get()?;
    for index in 0..room {
        into.set_at(index, found.get(index).copied().unwrap_or(0))?;
    }
    count.set(room.min(found.len()))
}

impl Graph {
    /// Returns the nodes of the graph, the oldest first.
    pub(crate) fn nodes(&self) -> Vec<usize> {
        self.content.lock().keys().copied().collect()
    }

    /// Returns the nodes without dependencies.
    pub(crate) fn roots(&self) -> Vec<usize> {
        let content = self.content.lock();
        let roots = content.iter().filter(|(_, n)| n.dependencies.is_empty());
        roots.map(|(node, _)| *node).collect()
    }

    /// Returns the nodes that depend on a node.
    pub(crate) fn dependents(&self, node: usize) -> Vec<usize> {
        let content = self.content.lock();
        let dependents = content
            .iter()
            .filter(|(_, other)| other.dependencies.contains(&node));
        dependents.map(|(other, _)| *other).collect()
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> u32 {
    call_in_context(|driver, _| list(&graph::find(driver, graph)?.nodes(), nodes, count))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetRootNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> u32 {
    call_in_context(|driver, _| list(&graph::find(driver, graph)?.roots(), nodes, count))
}

/// Puts as many plain edges as nodes were put.
fn put_edges(nodes: Out<usize>, edges: Out<EdgeData>, count: Out<usize>) -> Answer {
    if nodes.is_null() || edges.is_null() {
        return Ok(());
    }
    (0..count.get()?).try_for_each(|index| edges.set_at(index, EdgeData::default()))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetDependencies(node: usize, nodes: Out<usize>, count: Out<usize>) -> u32 {
    cuGraphNodeGetDependencies_v2(node, nodes, Out::at(0), count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetDependencies_v2(
    node: usize,
    nodes: Out<usize>,
    edges: Out<EdgeData>,
    count: Out<usize>,
) -> u32 {
    call_in_context(|driver, _| {
        let owner = graph::owner(driver, node)?;
        let found = owner.look(node, |node| node.dependencies.clone())?;
        list(&found, nodes, count)?;
        put_edges(nodes, edges, count)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetDependentNodes(
    node: usize,
    nodes: Out<usize>,
    count: Out<usize>,
) -> u32 {
    cuGraphNodeGetDependentNodes_v2(node, nodes, Out::at(0), count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetDependentNodes_v2(
    node: usize,
    nodes: Out<usize>,
    edges: Out<EdgeData>,
    count: Out<usize>,
) -> u32 {
    call_in_context(|driver, _| {
        let found = graph::owner(driver, node)?.dependents(node);
        list(&found, nodes, count)?;
        put_edges(nodes, edges, count)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeFindInClone(node: Out<usize>, original: usize, clone: usize) -> u32 {
    call_in_context(|driver, _| {
        let clone = graph::find(driver, clone)?;
        let content = clone.content.lock();
        let found = content.iter().find(|(_, node)| node.original == original);
        match found {
            Some((found, _)) if original != 0 => node.set(*found),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}
