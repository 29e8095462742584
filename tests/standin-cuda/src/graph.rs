//! Graphs (CUDA driver API, "Graph Management"): work noted once and launched as one piece.
//!
//! Nodes are executed in the order in which they were added; a dependency must have been added
//! before. What a launch executes is what was instantiated.

use std::sync::{Arc, Mutex};

use causeway_mediator::backend::{LaunchOptions, LaunchShape};

use crate::boundary::{In, Out};
use crate::copy::{copy_work, fill_work};
use crate::driver::{Driver, call_in_context, lock};
use crate::error::{Answer, Code};
use crate::function;
use crate::handles;
use crate::launch::launch_work;
use crate::queue::Position;
use crate::stream::{self, batch};
use crate::structures::{BatchNode, Copy3d, CopySide, FillNode, KernelNode};
use crate::work::Work;

/// Flags of an instantiation that this driver takes: use of node priorities, and release of memory
/// at launch.
const INSTANTIATE_FLAGS: u64 = 1 | 8;

/// Nodes in order.
pub(crate) struct Graph {
    device: usize,
    nodes: Vec<Node>,
}

#[derive(Clone)]
struct Node {
    handle: usize,
    work: Work,
}

/// A graph that can be launched.
pub(crate) struct Executable {
    device: usize,
    nodes: Mutex<Vec<Node>>,
    /// Launches of one executable follow each other.
    last: Mutex<Option<Position>>,
}

impl Graph {
    /// A graph without nodes, for a device.
    pub(crate) fn new(device: usize) -> Self {
        Self {
            device,
            nodes: Vec::new(),
        }
    }

    /// Adds a node behind all others.
    pub(crate) fn add(&mut self, work: Work) -> usize {
        let handle = handles::fresh();
        self.nodes.push(Node { handle, work });
        handle
    }

    fn check(&self, dependencies: &[usize]) -> Answer {
        let is_known = |wanted: &usize| self.nodes.iter().any(|node| node.handle == *wanted);
        if dependencies.iter().all(is_known) {
            Ok(())
        } else {
            Err(Code::INVALID_VALUE)
        }
    }
}

fn find(driver: &Driver, graph: usize) -> Answer<Arc<Mutex<Graph>>> {
    // The API calls a wrong graph an invalid value.
    driver.state().graphs.get(graph).ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphCreate(graph: Out<usize>, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        if graph.is_null() || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = Mutex::new(Graph::new(context.device));
        graph.set(driver.state().graphs.insert(Arc::new(made)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.state().graphs.remove(graph);
        removed.map(drop).ok_or(Code::INVALID_VALUE)
    })
}

/// Where a node goes and what it is after.
struct Place {
    node: Out<usize>,
    graph: usize,
    dependencies: In<usize>,
    count: usize,
}

impl Place {
    fn fill(self, make: impl FnOnce(&'static Driver, usize) -> Answer<Work>) -> u32 {
        call_in_context(|driver, _| {
            if self.node.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let graph = find(driver, self.graph)?;
            let device = lock(&graph).device;
            let work = make(driver, device)?;
            let mut graph = lock(&graph);
            graph.check(&self.dependencies.list(self.count)?)?;
            self.node.set(graph.add(work))
        })
    }
}

macro_rules! nodes {
    ($($name:ident($given:ident: $type:ty $(, $ignored:ident)?) = $make:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(
                node: Out<usize>,
                graph: usize,
                dependencies: In<usize>,
                count: usize,
                $given: In<$type>,
                $($ignored: usize,)?
            ) -> u32 {
                let place = Place { node, graph, dependencies, count };
                place.fill(|driver, device| $make(driver, device, $given.get()?))
            }
        )*
    };
}

nodes! {
    cuGraphAddKernelNode_v2(given: KernelNode) = kernel_work;
    cuGraphAddMemcpyNode(given: Copy3d, _context) = rows_work;
    cuGraphAddMemsetNode(given: FillNode, _context) = rectangle_work;
    cuGraphAddBatchMemOpNode(given: BatchNode) = batch_work;
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddEmptyNode(
    node: Out<usize>,
    graph: usize,
    dependencies: In<usize>,
    count: usize,
) -> u32 {
    let place = Place {
        node,
        graph,
        dependencies,
        count,
    };
    place.fill(|_, _| Ok(Work::Nothing))
}

fn kernel_work(driver: &Driver, _device: usize, given: KernelNode) -> Answer<Work> {
    let kernel = function::find(driver, given.function)?;
    let shape = LaunchShape {
        grid: given.grid,
        block: given.block,
        shared_bytes: given.shared_bytes,
    };
    launch_work(
        &kernel,
        (shape, LaunchOptions::PLAIN),
        In::at(given.parameters),
        In::at(given.extra),
    )
}

fn batch_work(driver: &Driver, device: usize, given: BatchNode) -> Answer<Work> {
    let operations = In::at(given.operations);
    batch(driver, device, given.count, operations, given.flags)
}

fn rectangle_work(driver: &Driver, device: usize, given: FillNode) -> Answer<Work> {
    if !matches!(given.element_bytes, 1 | 2 | 4) || given.height == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if given.height > 1 && given.pitch < given.width * u64::from(given.element_bytes) {
        return Err(Code::INVALID_VALUE);
    }
    let row = |row: u64| {
        let start = given
            .destination
            .wrapping_add(row.wrapping_mul(given.pitch));
        let element = (start, given.value, given.element_bytes);
        fill_work(driver, device, element, given.width)
    };
    let rows: Answer<Vec<Work>> = (0..given.height).map(row).collect();
    rows.map(Work::Sequence)
}

/// Address of a row of one side of a copy.
fn row_start(side: &CopySide, row: u64, slice: u64) -> Answer<u64> {
    // Host, device, unified; arrays are not for this driver.
    let base = match side.memory_type {
        1 => side.host,
        2 | 4 => side.device,
        _ => return Err(Code::NOT_SUPPORTED),
    };
    let rows = (side.z + slice)
        .wrapping_mul(side.height)
        .wrapping_add(side.y + row);
    let offset = side.x_bytes.wrapping_add(rows.wrapping_mul(side.pitch));
    Ok(base.wrapping_add(offset))
}

fn rows_work(driver: &Driver, device: usize, given: Copy3d) -> Answer<Work> {
    let (rows, slices) = (given.height.max(1), given.depth.max(1));
    if given.width_bytes == 0 || rows.saturating_mul(slices) > 1 << 20 {
        return Err(Code::INVALID_VALUE);
    }
    let mut parts = Vec::new();
    for slice in 0..slices {
        for row in 0..rows {
            let destination = row_start(&given.destination, row, slice)?;
            let source = row_start(&given.source, row, slice)?;
            let ends = (destination, source);
            parts.push(copy_work(driver, device, ends, given.width_bytes)?);
        }
    }
    Ok(Work::Sequence(parts))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> u32 {
    call_in_context(|driver, _| {
        let graph = find(driver, graph)?;
        let graph = lock(&graph);
        if nodes.is_null() {
            return count.set(graph.nodes.len());
        }
        let room = count.get()?;
        for index in 0..room {
            let node = graph.nodes.get(index);
            nodes.set_at(index, node.map_or(0, |node| node.handle))?;
        }
        count.set(room.min(graph.nodes.len()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, flags: u64) -> u32 {
    call_in_context(|driver, _| {
        if executable.is_null() || flags & !INSTANTIATE_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let graph = find(driver, graph)?;
        let graph = lock(&graph);
        let made = Executable {
            device: graph.device,
            nodes: Mutex::new(graph.nodes.clone()),
            last: Mutex::new(None),
        };
        executable.set(driver.state().executables.insert(Arc::new(made)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiate_v2(
    executable: Out<usize>,
    graph: usize,
    _error_node: usize,
    _log: usize,
    _room: usize,
) -> u32 {
    cuGraphInstantiateWithFlags(executable, graph, 0)
}

fn find_executable(driver: &Driver, handle: usize) -> Answer<Arc<Executable>> {
    let found = driver.state().executables.get(handle);
    found.ok_or(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        find_executable(driver, executable)?;
        stream::find(driver, context, stream).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let executable = find_executable(driver, executable)?;
        let stream = stream::find(driver, context, stream)?;
        if stream.device != executable.device {
            return Err(Code::INVALID_VALUE);
        }
        let parts = lock(&executable.nodes);
        let parts = parts.iter().map(|node| node.work.clone()).collect();
        let mut last = lock(&executable.last);
        let after = last.iter().cloned().collect();
        let position = stream.submit_after(driver, Work::Sequence(parts), after)?;
        *last = Some(position);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.state().executables.remove(executable);
        removed.map(drop).ok_or(Code::INVALID_VALUE)
    })
}

/// Changes a node of what was instantiated; launches under way keep what they began with.
fn change(
    executable: usize,
    node: usize,
    make: impl FnOnce(&'static Driver, usize) -> Answer<Work>,
) -> u32 {
    call_in_context(|driver, _| {
        let executable = find_executable(driver, executable)?;
        let work = make(driver, executable.device)?;
        let mut nodes = lock(&executable.nodes);
        let found = nodes.iter_mut().find(|found| found.handle == node);
        let found = found.ok_or(Code::INVALID_VALUE)?;
        if std::mem::discriminant(&found.work) != std::mem::discriminant(&work) {
            return Err(Code::INVALID_VALUE);
        }
        found.work = work;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    executable: usize,
    node: usize,
    given: In<KernelNode>,
) -> u32 {
    change(executable, node, |driver, device| {
        kernel_work(driver, device, given.get()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemcpyNodeSetParams(
    executable: usize,
    node: usize,
    given: In<Copy3d>,
    _context: usize,
) -> u32 {
    change(executable, node, |driver, device| {
        rows_work(driver, device, given.get()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemsetNodeSetParams(
    executable: usize,
    node: usize,
    given: In<FillNode>,
    _context: usize,
) -> u32 {
    change(executable, node, |driver, device| {
        rectangle_work(driver, device, given.get()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecBatchMemOpNodeSetParams(
    executable: usize,
    node: usize,
    given: In<BatchNode>,
) -> u32 {
    change(executable, node, |driver, device| {
        batch_work(driver, device, given.get()?)
    })
}
