//! Calls that change nodes of executable graphs. Launches under way keep what they began with: it
//! is in the ring.

use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::Answer;
use crate::event;
use crate::graph;
use crate::graph::create::{of_batch, of_copy, of_fill, of_first};
use crate::graph::executable::find;
use crate::graph::node::Kind;
use crate::graph::plan::Plan;
use crate::structures::{BatchNode, Copy3d, FillNode, FirstKernelNode, HostNode, KernelNode};

fn change(
    executable: usize,
    node: usize,
    make: impl FnOnce(&'static Driver) -> Answer<Kind>,
) -> u32 {
    call_in_context(|driver, _| {
        let executable = find(driver, executable)?;
        let kind = make(driver)?;
        executable.plan.lock().step(node)?.replace(kind)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecKernelNodeSetParams(
    executable: usize,
    node: usize,
    given: In<FirstKernelNode>,
) -> u32 {
    change(executable, node, |driver| {
        Kind::of_kernel(driver, of_first(given.get()?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    executable: usize,
    node: usize,
    given: In<KernelNode>,
) -> u32 {
    change(executable, node, |driver| {
        Kind::of_kernel(driver, given.get()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemcpyNodeSetParams(
    executable: usize,
    node: usize,
    given: In<Copy3d>,
    _context: usize,
) -> u32 {
    change(executable, node, |driver| of_copy(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemsetNodeSetParams(
    executable: usize,
    node: usize,
    given: In<FillNode>,
    _context: usize,
) -> u32 {
    change(executable, node, |driver| of_fill(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecHostNodeSetParams(
    executable: usize,
    node: usize,
    given: In<HostNode>,
) -> u32 {
    change(executable, node, |driver| {
        Kind::of_host(driver, given.get()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecBatchMemOpNodeSetParams(
    executable: usize,
    node: usize,
    given: In<BatchNode>,
) -> u32 {
    change(executable, node, |driver| of_batch(driver, given.get()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecEventRecordNodeSetEvent(
    executable: usize,
    node: usize,
    event: usize,
) -> u32 {
    change(executable, node, |driver| {
        event::find_given(driver, event).map(Kind::Record)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecEventWaitNodeSetEvent(
    executable: usize,
    node: usize,
    event: usize,
) -> u32 {
    change(executable, node, |driver| {
        event::find_given(driver, event).map(Kind::Wait)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecChildGraphNodeSetParams(
    executable: usize,
    node: usize,
    child: usize,
) -> u32 {
    call_in_context(|driver, _| {
        let executable = find(driver, executable)?;
        let newer = Plan::of(&*graph::find(driver, child)?)?;
        executable.plan.lock().step(node)?.replace_graph(newer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeSetEnabled(executable: usize, node: usize, is_enabled: u32) -> u32 {
    call_in_context(|driver, _| {
        let executable = find(driver, executable)?;
        *executable.plan.lock().step(node)?.switch()? = is_enabled != 0;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphNodeGetEnabled(executable: usize, node: usize, is_enabled: Out<u32>) -> u32 {
    call_in_context(|driver, _| {
        let executable = find(driver, executable)?;
        let found = *executable.plan.lock().step(node)?.switch()?;
        is_enabled.set(u32::from(found))
    })
}
