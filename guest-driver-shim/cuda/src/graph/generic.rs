//! Calls that take the parameters of a node of any kind (`CUgraphNodeParams`).

use zerocopy::FromBytes;

use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::conditional::of_conditional;
use crate::graph::create::{Place, of_batch, of_copy, of_fill, of_graph};
use crate::graph::executable::find;
use crate::graph::memory_nodes::{of_allocation, of_free};
use crate::graph::node::Kind;
use crate::graph::plan::Plan;
use crate::graph::{self, Graph};
use crate::structures::{
    AllocationNode, ChildNode, ConditionalNode, CopyNode, EdgeData, NodeParameters,
};
use crate::{context, event};

/// Offset of what a kind of node has, in bytes.
const CONTENT: usize = std::mem::offset_of!(NodeParameters, content);
/// Offset of the address of the graphs in the parameters of a conditional node, in bytes.
const BODIES: usize = std::mem::offset_of!(ConditionalNode, bodies);

/// `CUgraphNodeType`
const CHILD: u32 = 4;

/// The parameters of a node, where the caller has them.
#[derive(Clone, Copy)]
struct Given {
    kind: u32,
    /// Address of what the kind has.
    content: usize,
}

impl Given {
    fn at(parameters: Out<NodeParameters>) -> Answer<Self> {
        let found = parameters.get()?;
        // As documented, unused bytes are 0.
        if found.reserved != [0; 3] || found.reserved_behind != 0 {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Self {
            kind: found.kind,
            content: parameters.address_of(0)? + CONTENT,
        })
    }

    fn get<T: FromBytes>(self) -> Answer<T> {
        In::at(self.content).get()
    }

    /// Returns a node whose parameters can be changed, too.
    fn changeable(self, driver: &'static Driver) -> Answer<Kind> {
        match self.kind {
            0 => Kind::of_kernel(driver, self.get()?),
            1 => self.copy(driver),
            2 => of_fill(driver, self.get()?),
            3 => Kind::of_host(driver, self.get()?),
            5 => Ok(Kind::Empty),
            6 => event::find_given(driver, self.get()?).map(Kind::Wait),
            7 => event::find_given(driver, self.get()?).map(Kind::Record),
            12 => of_batch(driver, self.get()?),
            // Graphs, semaphores, memory, conditional nodes.
            4 | 8..=11 | 13 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns a node for `graph`, and puts what the caller is to get.
    fn make(self, driver: &'static Driver, graph: &Graph) -> Answer<Kind> {
        match self.kind {
            CHILD => of_graph(driver, self.child()?),
            10 => context::with_current(driver, |current| {
                of_allocation(driver, current?, Out::<AllocationNode>::at(self.content))
            }),
            11 => of_free(driver, self.get()?),
            13 => {
                let (kind, list) = of_conditional(driver, graph, self.get()?)?;
                Out::at(self.content + BODIES).set(list)?;
                Ok(kind)
            }
            _ => self.changeable(driver),
        }
    }

    fn copy(self, driver: &'static Driver) -> Answer<Kind> {
        let given: CopyNode = self.get()?;
        match (given.flags, given.reserved) {
            (0, 0) => of_copy(driver, given.copy),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns the handle of the graph that becomes a node.
    fn child(self) -> Answer<usize> {
        let given: ChildNode = self.get()?;
        match given.ownership {
            0 => Ok(given.graph),
            // The graph itself, not a copy of it.
            1 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddNode(
    node: Out<usize>,
    graph: usize,
    dependencies: In<usize>,
    count: usize,
    parameters: Out<NodeParameters>,
) -> u32 {
    let edges = In::at(0);
    cuGraphAddNode_v2(node, graph, dependencies, edges, count, parameters)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddNode_v2(
    node: Out<usize>,
    graph: usize,
    dependencies: In<usize>,
    edges: In<EdgeData>,
    count: usize,
    parameters: Out<NodeParameters>,
) -> u32 {
    let place = Place {
        node,
        graph,
        dependencies,
        count,
    };
    place.fill(|driver, graph| {
        graph::check_edges(edges, count)?;
        Given::at(parameters)?.make(driver, graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeSetParams(node: usize, parameters: Out<NodeParameters>) -> u32 {
    call_in_context(|driver, _| {
        let owner = graph::owner(driver, node)?;
        let kind = Given::at(parameters)?.changeable(driver)?;
        owner.replace(node, kind).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecNodeSetParams(
    executable: usize,
    node: usize,
    parameters: Out<NodeParameters>,
) -> u32 {
    call_in_context(|driver, _| {
        let executable = find(driver, executable)?;
        let given = Given::at(parameters)?;
        if given.kind == CHILD {
            let newer = Plan::of(&*graph::find(driver, given.child()?)?)?;
            return executable.plan.lock().step(node)?.replace_graph(newer);
        }
        let kind = given.changeable(driver)?;
        executable.plan.lock().step(node)?.replace(kind)
    })
}
