//! Executable graphs: instantiation, update and end.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary::Out;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::plan::{Difference, Plan};
use crate::graph::{self, Graph};
use crate::stream;
use crate::structures::{InstantiateParameters, UpdateResult};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
const FREE_AT_LAUNCH: u64 = 1;
/// Flags of an instantiation: release of memory at launch, upload, and use of node priorities.
const UPLOAD: u64 = 2;
const FLAGS: u64 = FREE_AT_LAUNCH | UPLOAD | 8;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`
const DEVICE_LAUNCH: u64 = 4;
/// Release of memory at a launch by the device.
const NO_DEVICE_LAUNCH: u64 = FREE_AT_LAUNCH | DEVICE_LAUNCH;
/// `CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE` and `…_CONDITIONAL_HANDLE_UNUSED`
const INVALID_STRUCTURE: u32 = 2;
const UNUSED_CONDITION: u32 = 5;

/// A graph that can be launched.
pub(crate) struct Executable {
    flags: u64,
    pub(crate) plan: Mutex<Plan>,
}

impl Executable {
    /// Returns whether a launch frees what an earlier one has allocated.
    pub(crate) const fn frees_before_launch(&self) -> bool {
        self.flags & FREE_AT_LAUNCH != 0
    }
}

/// Returns the executable graph of a handle.
pub(crate) fn find(driver: &Driver, handle: usize) -> Answer<Arc<Executable>> {
    let found = driver.graphs.lock().executables.get(handle);
    found.ok_or(Code::INVALID_VALUE)
}

fn check_flags(flags: u64) -> Answer {
    match flags {
        flags if flags & !(FLAGS | DEVICE_LAUNCH) != 0 => Err(Code::INVALID_VALUE),
        // The device cannot free memory of the graph.
        flags if flags & NO_DEVICE_LAUNCH == NO_DEVICE_LAUNCH => Err(Code::INVALID_VALUE),
        // No node can be launched by the device.
        flags if flags & DEVICE_LAUNCH != 0 => Err(Code::INVALID_VALUE),
        _ => Ok(()),
    }
}

/// Returns the plan of a graph, or a `CUgraphInstantiateResult`.
fn plan(graph: &Graph) -> Result<Plan, u32> {
    match graph.has_unused_condition() {
        true => Err(UNUSED_CONDITION),
        false => Plan::of(graph).map_err(|_| INVALID_STRUCTURE),
    }
}

fn instantiate(driver: &'static Driver, into: Out<usize>, plan: Plan, flags: u64) -> Answer {
    driver.conditions.forget_done(driver);
    if plan.has_branches() {
        driver.rings.prepare_bodies(driver)?;
    }
    let made = Executable {
        flags,
        plan: Mutex::new(plan),
    };
    into.set(driver.graphs.lock().executables.insert(Arc::new(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, flags: u64) -> u32 {
    call_in_context(|driver, _| {
        if executable.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        check_flags(flags)?;
        let plan = plan(&*graph::find(driver, graph)?).map_err(|_| Code::INVALID_VALUE)?;
        instantiate(driver, executable, plan, flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiate_v2(
    executable: Out<usize>,
    graph: usize,
    node: Out<usize>,
    log: Out<u8>,
    log_bytes: usize,
) -> u32 {
    node.set_if_wanted(0);
    if log_bytes > 0 {
        log.set_if_wanted(0);
    }
    cuGraphInstantiateWithFlags(executable, graph, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiate(
    executable: Out<usize>,
    graph: usize,
    node: Out<usize>,
    log: Out<u8>,
    log_bytes: usize,
) -> u32 {
    cuGraphInstantiate_v2(executable, graph, node, log, log_bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithParams(
    executable: Out<usize>,
    graph: usize,
    parameters: Out<InstantiateParameters>,
) -> u32 {
    call_in_context(|driver, context| {
        if executable.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut given = parameters.get()?;
        check_flags(given.flags)?;
        if given.flags & UPLOAD != 0 {
            stream::find(driver, context, given.upload_stream)?;
        }
        let plan = plan(&*graph::find(driver, graph)?);
        given.error_node = 0;
        given.result = plan.as_ref().err().copied().unwrap_or(0);
        parameters.set(given)?;
        let plan = plan.map_err(|_| Code::INVALID_VALUE)?;
        instantiate(driver, executable, plan, given.flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecGetFlags(executable: usize, flags: Out<u64>) -> u32 {
    call_in_context(|driver, _| flags.set(find(driver, executable)?.flags))
}

/// Ends the handle. Work of its launches goes on: the ring has copies of all parameters, and a
/// module is unloaded only when the ring is done with it.
#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.graphs.lock().executables.remove(executable);
        driver.conditions.forget_done(driver);
        removed.map(drop).ok_or(Code::INVALID_VALUE)
    })
}

/// Makes an executable graph do what another graph does that has the same nodes and edges.
fn update(driver: &Driver, executable: usize, graph: usize) -> Answer<Option<Difference>> {
    let executable = find(driver, executable)?;
    let newer = Plan::of(&*graph::find(driver, graph)?)?;
    let mut plan = executable.plan.lock();
    let difference = plan.difference(&newer);
    if difference.is_none() {
        plan.update(newer);
    }
    Ok(difference)
}

fn update_result(difference: &Option<Difference>) -> UpdateResult {
    let of = |field: fn(&Difference) -> usize| difference.as_ref().map_or(0, field);
    UpdateResult {
        result: difference.as_ref().map_or(0, |found| found.reason),
        padding: 0,
        error_node: of(|found| found.node),
        error_from_node: of(|found| found.old_node),
    }
}

fn answer_of(result: &UpdateResult) -> Answer {
    match result.result {
        0 => Ok(()),
        _ => Err(Code::GRAPH_EXEC_UPDATE_FAILURE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecUpdate_v2(
    executable: usize,
    graph: usize,
    result: Out<UpdateResult>,
) -> u32 {
    call_in_context(|driver, _| {
        let found = update_result(&update(driver, executable, graph)?);
        result.set_if_wanted(found);
        answer_of(&found)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecUpdate(
    executable: usize,
    graph: usize,
    node: Out<usize>,
    result: Out<u32>,
) -> u32 {
    call_in_context(|driver, _| {
        if result.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = update_result(&update(driver, executable, graph)?);
        node.set_if_wanted(found.error_node);
        result.set(found.result)?;
        answer_of(&found)
    })
}
