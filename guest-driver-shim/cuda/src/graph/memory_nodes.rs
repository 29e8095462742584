//! Nodes that allocate and free memory.

use std::sync::Arc;

use crate::boundary::{In, Out};
use crate::context::Context;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::node::Kind;
use crate::graph::plan::{Content, Plan};
use crate::graph::{self, Graph, Node};
use crate::memory::graph_memory::{self, NodeMemory, Step};
use crate::structures::{AccessDescription, AllocationNode, Location};

/// Most descriptions of accesses: there is one device.
const ACCESSES_MAX: usize = 64;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const DEVICE: i32 = 1;

/// What a node has allocated.
pub(crate) struct Allocated {
    memory: NodeMemory,
    /// As the program gave it, with the address and with the accesses below.
    given: AllocationNode,
    _accesses: Box<[AccessDescription]>,
}

/// Returns a node that allocates what `given` says, and puts the address there.
pub(crate) fn of_allocation(
    driver: &'static Driver,
    context: &Context,
    into: Out<AllocationNode>,
) -> Answer<Kind> {
    let mut given = into.get()?;
    if given.bytes == 0 || given.access_count > ACCESSES_MAX {
        return Err(Code::INVALID_VALUE);
    }
    let accesses = In::<AccessDescription>::at(given.accesses);
    let accesses: Answer<Box<[AccessDescription]>> = (0..given.access_count)
        .map(|index| accesses.get_at(index))
        .collect();
    let accesses = accesses?;
    for access in &accesses {
        if access.location.kind != DEVICE || !matches!(access.flags, 0 | 1 | 3) {
            return Err(Code::INVALID_VALUE);
        }
        // Memory of graphs is for their own device.
        if Driver::of_device(access.location.id)?.ordinal != driver.ordinal {
            return Err(Code::NOT_SUPPORTED);
        }
    }
    let memory = NodeMemory::new(driver, context, (&given.pool, given.bytes as u64))?;
    given.address = memory.address;
    into.set(given)?;
    given.accesses = match accesses.is_empty() {
        true => 0,
        false => accesses.as_ptr() as usize,
    };
    Ok(Kind::Allocate(Arc::new(Allocated {
        memory,
        given,
        _accesses: accesses,
    })))
}

/// Returns a node for a captured allocation of a stream, and its address.
pub(crate) fn of_captured(
    driver: &'static Driver,
    context: &Context,
    bytes: u64,
) -> Answer<(Kind, u64)> {
    let mut given = AllocationNode::default();
    given.pool.kind = 1;
    given.pool.location = Location {
        kind: DEVICE,
        id: 0,
    };
    given.bytes = bytes as usize;
    let place = Out::<AllocationNode>::at(std::ptr::from_mut(&mut given) as usize);
    let kind = of_allocation(driver, context, place)?;
    let address = match &kind {
        Kind::Allocate(allocated) => allocated.memory.address,
        _ => 0,
    };
    Ok((kind, address))
}

/// Returns a node that frees the memory of a node.
pub(crate) fn of_free(driver: &Driver, address: u64) -> Answer<Kind> {
    match graph_memory::is_of_node(driver, address) {
        true => Ok(Kind::Free { address }),
        false => Err(Code::INVALID_VALUE),
    }
}

impl Kind {
    /// Returns what the node does to memory.
    fn memory(&self) -> Option<Step> {
        match self {
            Self::Allocate(allocated) => Some(Step::Allocate(allocated.memory.address)),
            Self::Free { address } => Some(Step::Free(*address)),
            _ => None,
        }
    }
}

impl Graph {
    /// Returns whether a node of it, or of a graph in it, allocates or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        let content = self.content.lock();
        let mut kinds = content.values().map(|node| &node.kind);
        kinds.any(|kind| {
            let mut within = kind.graphs().iter();
            kind.memory().is_some() || within.any(|graph| graph.has_memory())
        })
    }

    /// Refuses what cannot be with nodes that allocate and free memory: a clone of the graph, or
    /// a place in another one.
    pub(crate) fn check_no_memory(&self) -> Answer {
        match self.has_memory() {
            true => Err(Code::NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// Refuses a second node that frees the same memory, and one that is not behind the node of
    /// this graph that allocates it.
    pub(super) fn check_free(&self, kind: &Kind, dependencies: &[usize]) -> Answer {
        let Kind::Free { address } = kind else {
            return Ok(());
        };
        let (free, allocate) = (Step::Free(*address), Step::Allocate(*address));
        let content = self.content.lock();
        let node_of = |step: Step| {
            let is_step = |(_, node): &(&usize, &Node)| node.kind.memory() == Some(step);
            content.iter().find(is_step).map(|(handle, _)| *handle)
        };
        let (freed, allocated) = (node_of(free), node_of(allocate));
        drop(content);
        let is_behind = allocated.is_none_or(|node| self.ancestors(dependencies).contains(&node));
        match freed.is_none() && is_behind {
            true => Ok(()),
            false => Err(Code::INVALID_VALUE),
        }
    }
}

impl Plan {
    /// Returns what a launch does to memory, in order.
    pub(crate) fn memory(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.add_memory(&mut steps);
        steps
    }

    fn add_memory(&self, into: &mut Vec<Step>) {
        for step in self.steps() {
            match step {
                Content::Node(kind) => into.extend(kind.memory()),
                Content::Graph(plan) => plan.add_memory(into),
                // No body has such nodes.
                Content::Branch(_) => {}
            }
        }
    }
}

/// Answers with what `read` finds in a node.
fn get<T>(node: usize, into: Out<T>, read: impl FnOnce(&Kind) -> Option<T>) -> u32 {
    call_in_context(|driver, _| {
        let owner = graph::owner(driver, node)?;
        let found = owner.look(node, |node: &Node| read(&node.kind))?;
        into.set(found.ok_or(Code::INVALID_VALUE)?)
    })
}

/// Returns the parameters. The list of accesses belongs to the node.
#[unsafe(no_mangle)]
extern "C" fn cuGraphMemAllocNodeGetParams(node: usize, into: Out<AllocationNode>) -> u32 {
    get(node, into, |kind| match kind {
        Kind::Allocate(allocated) => Some(allocated.given),
        _ => None,
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphMemFreeNodeGetParams(node: usize, into: Out<u64>) -> u32 {
    get(node, into, |kind| match kind {
        Kind::Free { address } => Some(*address),
        _ => None,
    })
}
