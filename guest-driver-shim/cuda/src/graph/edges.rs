//! Calls on the edges of graphs.

use crate::boundary::{In, Out};
use crate::driver::call_in_context;
use crate::error::{Answer, Code};
use crate::graph::{self, Graph};
use crate::structures::EdgeData;

/// Most edges that one call takes.
const EDGES_MAX: usize = 1 << 20;

impl Graph {
    /// Returns the edges: the node before and the node behind.
    pub(crate) fn edges(&self) -> Vec<(usize, usize)> {
        let content = self.content.lock();
        let edges = content.iter().flat_map(|(node, found)| {
            let before = found.dependencies.iter();
            before.map(|before| (*before, *node))
        });
        edges.collect()
    }

    /// Adds edges between nodes of the graph, all of them or none.
    pub(crate) fn connect(&self, edges: &[(usize, usize)]) -> Answer {
        let mut content = self.content.lock();
        for (index, (from, to)) in edges.iter().enumerate() {
            let is_new = content.contains_key(from)
                && from != to
                && content
                    .get(to)
                    .is_some_and(|node| !node.dependencies.contains(from))
                && !edges[..index].contains(&(*from, *to));
            if !is_new {
                return Err(Code::INVALID_VALUE);
            }
        }
        for (from, to) in edges {
            if let Some(node) = content.get_mut(to) {
                node.dependencies.push(*from);
            }
        }
        Ok(())
    }

    /// Removes edges, all of them or none.
    pub(crate) fn disconnect(&self, edges: &[(usize, usize)]) -> Answer {
        let mut content = self.content.lock();
        for (from, to) in edges {
            let node = content.get(to).ok_or(Code::INVALID_VALUE)?;
            if !node.dependencies.contains(from) {
                return Err(Code::INVALID_VALUE);
            }
        }
        for (from, to) in edges {
            if let Some(node) = content.get_mut(to) {
                node.dependencies.retain(|before| before != from);
            }
        }
        Ok(())
    }
}

fn pairs(from: In<usize>, to: In<usize>, count: usize) -> Answer<Vec<(usize, usize)>> {
    if count > EDGES_MAX {
        return Err(Code::INVALID_VALUE);
    }
    (0..count)
        .map(|index| Ok((from.get_at(index)?, to.get_at(index)?)))
        .collect()
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddDependencies(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    count: usize,
) -> u32 {
    cuGraphAddDependencies_v2(graph, from, to, In::at(0), count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddDependencies_v2(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    edges: In<EdgeData>,
    count: usize,
) -> u32 {
    call_in_context(|driver, _| {
        let graph = graph::find(driver, graph)?;
        let pairs = pairs(from, to, count)?;
        graph::check_edges(edges, count)?;
        graph.connect(&pairs)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphRemoveDependencies(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    count: usize,
) -> u32 {
    cuGraphRemoveDependencies_v2(graph, from, to, In::at(0), count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphRemoveDependencies_v2(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    edges: In<EdgeData>,
    count: usize,
) -> u32 {
    call_in_context(|driver, _| {
        let graph = graph::find(driver, graph)?;
        let pairs = pairs(from, to, count)?;
        graph::check_edges(edges, count)?;
        graph.disconnect(&pairs)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetEdges(
    graph: usize,
    from: Out<usize>,
    to: Out<usize>,
    count: Out<usize>,
) -> u32 {
    cuGraphGetEdges_v2(graph, from, to, Out::at(0), count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetEdges_v2(
    graph: usize,
    from: Out<usize>,
    to: Out<usize>,
    edges: Out<EdgeData>,
    count: Out<usize>,
) -> u32 {
    call_in_context(|driver, _| {
        let found = graph::find(driver, graph)?.edges();
        if from.is_null() && to.is_null() {
            return count.set(found.len());
        }
        let room = count.get()?;
        for index in 0..room {
            let (before, behind) = found.get(index).copied().unwrap_or((0, 0));
            from.set_at(index, before)?;
            to.set_at(index, behind)?;
            if !edges.is_null() {
                edges.set_at(index, EdgeData::default())?;
            }
        }
        count.set(room.min(found.len()))
    })
}
