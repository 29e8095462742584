//! Launches of executable graphs.

use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::executable::find;
use crate::graph::node::Kind;
use crate::graph::plan::Plan;
use crate::memory::graph_memory;
use crate::stream::{self, Stream};

/// Writes the packets of all nodes into the ring, one behind the other.
#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let executable = find(driver, executable)?;
        let stream = stream::find(driver, context, stream)?;
        let mut plan = executable.plan.lock();
        let memory = plan.memory();
        if stream.is_capturing() {
            return match memory.is_empty() {
                true => stream.note(Kind::Child(plan.to_graph())),
                false => Err(Code::NOT_SUPPORTED),
            };
        }
        // Before anything is noted that a refused launch would not do.
        stream.check_implicit(driver)?;
        let freed = match memory.is_empty() {
            true => Vec::new(),
            false => graph_memory::launch(driver, &memory, executable.frees_before_launch())?,
        };
        let launched = submit(driver, &stream, &mut plan);
        graph_memory::give_back(driver, freed);
        launched
    })
}

/// Submits the nodes of a graph. Launches of one executable graph do not overlap.
fn submit(driver: &Driver, stream: &Stream, plan: &mut Plan) -> Answer {
    let conditions = driver.conditions.of_launch(plan);
    conditions.follow(driver, stream)?;
    stream.follow(driver, plan.last)?;
    for awaited in plan.awaited() {
        stream.follow(driver, awaited)?;
    }
    plan.renew_events(driver, stream.ring_index())?;
    plan.last = stream.submit_packets(driver, |writing| {
        conditions.assign(driver, writing)?;
        plan.write(writing)
    })?;
    conditions.note(driver, plan);
    driver.rings.tell_early(driver, plan.last)?;
    plan.set_recorded(plan.last);
    Ok(())
}

/// There is nothing to upload: nodes are in the process until they are launched.
#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        find(driver, executable)?;
        stream::find(driver, context, stream)?.check_not_capturing()
    })
}
