//! Graphs (CUDA driver API, "Graph Management"): work with dependencies, noted once.
//!
//! A graph keeps its nodes under their handles, whose order is the one in which they were made.

pub(crate) mod branch;
pub(crate) mod change;
pub(crate) mod condition;
pub(crate) mod conditional;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod dot;
pub(crate) mod edges;
pub(crate) mod executable;
pub(crate) mod fill;
pub(crate) mod generic;
pub(crate) mod launch;
pub(crate) mod memory_nodes;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod order;
pub(crate) mod parameters;
pub(crate) mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::boundary::In;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::event_words::{EventWords, Word};
use crate::graph::executable::Executable;
use crate::graph::node::Kind;
use crate::graph::plan::Branch;
use crate::handles::{self, Handles};
use crate::rings::Submission;
use crate::structures::EdgeData;
use crate::user_object::Held;

/// How deep graphs may be nested.
const DEPTH_MAX: usize = 32;

/// A graph that can be changed.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    owner: Owner,
    /// How many graphs it is nested in.
    level: AtomicUsize,
    content: Mutex<BTreeMap<usize, Node>>,
    /// The conditions that were made for it.
    conditions: Mutex<Vec<Arc<Condition>>>,
    /// User objects to which it refers, by handle.
    pub(crate) objects: Mutex<BTreeMap<usize, Held>>,
}

/// Who ends a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The caller, who has made it.
    Caller,
    /// The capture that makes it, then the caller.
    Capture,
    /// A node of another graph.
    Node,
}

/// A node of a graph.
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Handles of the nodes that come before; each only once.
    pub(crate) dependencies: Vec<usize>,
    /// The node that this is a clone of; 0 if it is none.
    original: usize,
}

/// All graphs of the process.
#[derive(Default)]
pub(crate) struct Graphs {
    table: Handles<Graph>,
    /// The graph of each node.
    owners: BTreeMap<usize, Weak<Graph>>,
    executables: Handles<Executable>,
}

/// A condition ([`condition`]). It ends with the last graph, executable graph and launch that has
/// it.
pub(crate) struct Condition {
    word: Word,
    /// Handle of the graph for which it was made.
    graph: usize,
    context: Arc<Context>,
    /// What each launch begins with, if it shall.
    default: Option<u32>,
    has_node: AtomicBool,
    /// The last launch of a graph that has it.
    last: Mutex<Submission>,
}

/// All conditions of the process.
#[derive(Default)]
pub(crate) struct Conditions {
    words: EventWords,
    /// By handle.
    known: Mutex<BTreeMap<u64, Weak<Condition>>>,
    /// Held from when a launch looks which others it follows until it is noted.
    launching: Mutex<()>,
    /// Conditional nodes whose launches may be under way. They are kept here, so that the thread
    /// that executes them is not the last to have a kernel: the end of a module waits for work that
    /// may wait for the thread.
    running: Mutex<Vec<(Submission, Arc<Branch>)>>,
}

/// Returns the graph of a handle. The API calls a wrong graph an invalid value.
pub(crate) fn find(driver: &Driver, graph: usize) -> Answer<Arc<Graph>> {
    let found = driver.graphs.lock().table.get(graph);
    found.ok_or(Code::INVALID_VALUE)
}

/// Returns the graph of a node.
pub(crate) fn owner(driver: &Driver, node: usize) -> Answer<Arc<Graph>> {
    let owner = driver.graphs.lock().owners.get(&node).cloned();
    owner
        .and_then(|owner| owner.upgrade())
        .ok_or(Code::INVALID_VALUE)
}

/// Makes a graph, its nodes and the graphs within it known to callers.
pub(crate) fn adopt(driver: &Driver, graph: &Arc<Graph>) {
    let (nodes, children) = graph.members();
    let mut graphs = driver.graphs.lock();
    graphs.table.put(graph.handle, Arc::clone(graph));
    let owner = Arc::downgrade(graph);
    graphs
        .owners
        .extend(nodes.into_iter().map(|node| (node, owner.clone())));
    drop(graphs);
    children.iter().for_each(|child| adopt(driver, child));
}

/// Ends the handles of a graph, of its nodes and of the graphs within it.
pub(crate) fn forget(driver: &Driver, graph: &Arc<Graph>) {
    let (nodes, children) = graph.members();
    let mut graphs = driver.graphs.lock();
    let removed = graphs.table.remove(graph.handle);
    nodes
        .iter()
        .for_each(|node| drop(graphs.owners.remove(node)));
    drop(graphs);
    drop(removed);
    children.iter().for_each(|child| forget(driver, child));
}

/// Refuses edges other than those that mean the whole of both nodes.
pub(crate) fn check_edges(edges: In<EdgeData>, count: usize) -> Answer {
    if edges.is_null() {
        return Ok(());
    }
    for index in 0..count {
        if edges.get_at(index)? != EdgeData::default() {
            return Err(Code::NOT_SUPPORTED);
        }
    }
    Ok(())
}

impl Graph {
    fn with(owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            handle: handles::fresh(),
            owner,
            level: AtomicUsize::new(0),
            content: Mutex::default(),
            conditions: Mutex::default(),
            objects: Mutex::default(),
        })
    }

    /// Returns a graph without nodes.
    pub(crate) fn new() -> Arc<Self> {
        Self::with(Owner::Caller)
    }

    /// Returns a graph without nodes, for a capture to fill.
    pub(crate) fn of_capture() -> Arc<Self> {
        Self::with(Owner::Capture)
    }

    /// Returns whether the caller has made it.
    pub(crate) fn is_given(&self) -> bool {
        self.owner != Owner::Capture
    }

    /// Returns whether it is part of a node.
    pub(crate) fn is_child(&self) -> bool {
        self.owner == Owner::Node
    }

    /// Adds a node behind those of `dependencies`, and returns its handle.
    pub(crate) fn add(&self, kind: Kind, dependencies: &[usize]) -> Answer<usize> {
        let within = kind.graphs().to_vec();
        let level = self.level.load(Ordering::Relaxed) + 1;
        if within.iter().any(|graph| level + graph.depth() > DEPTH_MAX) {
            return Err(Code::NOT_SUPPORTED);
        }
        self.check_free(&kind, dependencies)?;
        let mut content = self.content.lock();
        check_distinct(dependencies)?;
        if dependencies.iter().any(|node| !content.contains_key(node)) {
            return Err(Code::INVALID_VALUE);
        }
        let handle = handles::fresh();
        let node = Node {
            kind,
            dependencies: dependencies.to_vec(),
            original: 0,
        };
        content.insert(handle, node);
        within.iter().for_each(|graph| graph.set_level(level));
        Ok(handle)
    }

    /// Returns whether it has a node.
    pub(crate) fn has(&self, node: usize) -> bool {
        self.content.lock().contains_key(&node)
    }

    /// Reads nodes that a caller has listed: none twice, and all of this graph.
    pub(crate) fn chosen(&self, nodes: In<usize>, count: usize) -> Answer<Vec<usize>> {
        // A list of more nodes than there are has a wrong one. It is not read.
        if count > self.content.lock().len() {
            return Err(Code::INVALID_VALUE);
        }
        let nodes = nodes.list(count)?;
        check_distinct(&nodes)?;
        let content = self.content.lock();
        match nodes.iter().all(|node| content.contains_key(node)) {
            true => Ok(nodes),
            false => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns what `look` finds in a node.
    pub(crate) fn look<T>(&self, node: usize, look: impl FnOnce(&Node) -> T) -> Answer<T> {
        let content = self.content.lock();
        content.get(&node).map(look).ok_or(Code::INVALID_VALUE)
    }

    /// Gives a node other parameters of its kind. Returns those that it had.
    pub(crate) fn replace(&self, node: usize, kind: Kind) -> Answer<Kind> {
        let mut content = self.content.lock();
        let node = content.get_mut(&node).ok_or(Code::INVALID_VALUE)?;
        match node.kind.number() == kind.number() {
            true => Ok(std::mem::replace(&mut node.kind, kind)),
            false => Err(Code::INVALID_VALUE),
        }
    }

    /// Takes out a node with its edges.
    pub(crate) fn remove(&self, node: usize) -> Answer<Node> {
        let mut content = self.content.lock();
        let removed = content.remove(&node).ok_or(Code::INVALID_VALUE)?;
        for other in content.values_mut() {
            other.dependencies.retain(|before| *before != node);
        }
        Ok(removed)
    }

    /// Returns `nodes` and all nodes that come before them.
    pub(crate) fn ancestors(&self, nodes: &[usize]) -> BTreeSet<usize> {
        let content = self.content.lock();
        let mut found = BTreeSet::new();
        let mut open = nodes.to_vec();
        while let Some(handle) = open.pop() {
            if let Some(node) = content.get(&handle)
                && found.insert(handle)
            {
                open.extend(&node.dependencies);
            }
        }
        found
    }

    /// Returns references to the same user objects for another graph.
    pub(crate) fn objects_again(&self) -> BTreeMap<usize, Held> {
        let objects = self.objects.lock();
        let again = objects.iter().filter_map(|(handle, held)| {
            // There are not so many references that there are no more.
            held.again().ok().map(|again| (*handle, again))
        });
        again.collect()
    }

    /// Returns a graph of the same nodes, with handles of its own.
    pub(crate) fn duplicate(&self, for_node: bool) -> Arc<Self> {
        let owner = if for_node { Owner::Node } else { Owner::Caller };
        let copy = Self::with(owner);
        *copy.objects.lock() = self.objects_again();
        let content = self.content.lock();
        let renamed: BTreeMap<usize, usize> =
            content.keys().map(|old| (*old, handles::fresh())).collect();
        let mut copied = copy.content.lock();
        for (old, node) in &*content {
            let dependencies = node.dependencies.iter();
            let node = Node {
                kind: node.kind.duplicate(),
                dependencies: dependencies.map(|before| renamed[before]).collect(),
                original: *old,
            };
            copied.insert(renamed[old], node);
        }
        drop(copied);
        copy.set_level(0);
        copy
    }

    /// Returns its nodes, and the graphs that belong to them.
    fn members(&self) -> (Vec<usize>, Vec<Arc<Self>>) {
        let content = self.content.lock();
        let graphs = content.values().flat_map(|node| node.kind.graphs());
        let graphs = graphs.cloned().collect();
        (content.keys().copied().collect(), graphs)
    }

    /// Returns whether it is another graph, or has that one within it.
    fn contains(&self, other: &Self) -> bool {
        let (_, within) = self.members();
        self.handle == other.handle || within.iter().any(|graph| graph.contains(other))
    }

    fn set_level(&self, level: usize) {
        self.level.store(level, Ordering::Relaxed);
        let (_, within) = self.members();
        within.iter().for_each(|graph| graph.set_level(level + 1));
    }

    /// Returns how many graphs are nested in it at most, itself included.
    fn depth(&self) -> usize {
        let (_, children) = self.members();
        1 + children
            .iter()
            .map(|child| child.depth())
            .max()
            .unwrap_or(0)
    }
}

fn check_distinct(nodes: &[usize]) -> Answer {
    let distinct: BTreeSet<&usize> = nodes.iter().collect();
    match distinct.len() == nodes.len() {
        true => Ok(()),
        false => Err(Code::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests;
