//! Conditions of graphs: values that kernels set and conditional nodes read (CUDA driver API,
//! `cuGraphConditionalHandleCreate`).
//!
//! A condition is a word of memory that device and process see, and its handle is the device's
//! address of the word. So a kernel that sets a condition stores to memory, with no more rights
//! than any other store ([`crate::image`], `docs/decisions/0022-conditional-nodes.md`). All
//! executable graphs that are made of a graph, and its clones, share its conditions: their launches
//! follow each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use causeway_protocol::registers::features;
use causeway_shim_linux::shim::SubmitError;
use parking_lot::{Mutex, MutexGuard};

use crate::boundary::Out;
use crate::context::{self, Context};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::graph::plan::Plan;
use crate::graph::{self, Condition, Conditions, Graph};
use crate::ring::Writing;
use crate::stream::Stream;
use crate::work::Work;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`
const ASSIGN_DEFAULT: u32 = 1;
/// Conditional nodes that are kept before a launch looks which launches are done.
const RUNNING_USUAL: usize = 64;

/// The conditions of a graph that is being launched.
pub(crate) struct Launch<'d> {
    conditions: &'d Conditions,
    all: BTreeMap<u64, Arc<Condition>>,
    _alone: Option<MutexGuard<'d, ()>>,
}

impl Condition {
    /// Returns the handle.
    pub(crate) const fn handle(&self) -> u64 {
        self.word.address()
    }

    /// Returns what was set last.
    pub(crate) fn value(&self) -> u32 {
        // Kernels set the low half.
        self.word.value() as u32
    }

    /// Returns the context for which it was made.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns whether a conditional node of `graph` may have it: one of the graph for which it was
    /// made, or of a graph within that.
    pub(crate) fn is_for(&self, driver: &Driver, graph: &Graph) -> bool {
        graph::find(driver, self.graph).is_ok_and(|own| own.contains(graph))
    }

    /// Notes that a node has it: the only one.
    pub(crate) fn claim(&self) -> Answer {
        match self.has_node.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Code::INVALID_VALUE),
        }
    }

    /// Writes the packet that sets the value with which a launch begins.
    fn assign(&self, driver: &Driver, writing: &mut Writing) -> Result<(), SubmitError> {
        let (address, Some(value)) = (self.handle(), self.default) else {
            return Ok(());
        };
        let work = match driver.has(features::WORDS) {
            true => Work::Store {
                address,
                value: value.into(),
                bytes: 4,
            },
            false => Work::Fill {
                destination: address,
                bytes: 4,
                pattern: value,
                width: 4,
            },
        };
        work.write(writing)
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        if Driver::get().is_ok() {
            let driver = self.context.driver;
            driver.conditions.known.lock().remove(&self.handle());
        }
    }
}

impl Conditions {
    fn make(
        &self,
        driver: &Driver,
        (graph, context): (usize, Arc<Context>),
        default: Option<u32>,
    ) -> Answer<Arc<Condition>> {
        let made = Arc::new(Condition {
            word: self.words.take(driver)?,
            graph,
            context,
            default,
            has_node: AtomicBool::new(false),
            last: Mutex::default(),
        });
        let mut known = self.known.lock();
        known.insert(made.handle(), Arc::downgrade(&made));
        Ok(made)
    }

    /// Returns the condition of a handle.
    pub(crate) fn find(&self, handle: u64) -> Answer<Arc<Condition>> {
        let known = self.known.lock();
        let found = known.get(&handle).and_then(Weak::upgrade);
        // Before the condition may end.
        drop(known);
        found.ok_or(Code::INVALID_VALUE)
    }

    /// Returns the conditions of a graph that is about to be launched. Launches of graphs that have
    /// conditions are submitted one after the other.
    pub(crate) fn of_launch(&self, plan: &Plan) -> Launch<'_> {
        let mut all = BTreeMap::new();
        plan.add_conditions(&mut all);
        Launch {
            conditions: self,
            _alone: (!all.is_empty()).then(|| self.launching.lock()),
            all,
        }
    }

    /// Forgets the conditional nodes of launches that are done.
    pub(crate) fn forget_done(&self, driver: &Driver) {
        let mut running = self.running.lock();
        if running.is_empty() {
            return;
        }
        // After a fault nothing is under way.
        let is_done = |last| driver.rings.is_done(driver, last).unwrap_or(true);
        let (done, left) = std::mem::take(&mut *running)
            .into_iter()
            .partition(|(last, _)| is_done(*last));
        *running = left;
        drop(running);
        // The last one may unload a module, which waits for work.
        drop::<Vec<_>>(done);
    }
}

impl Launch<'_> {
    /// Makes a stream wait for the launches of other executable graphs that have the conditions.
    pub(crate) fn follow(&self, driver: &Driver, stream: &Stream) -> Answer {
        let mut conditions = self.all.values();
        conditions.try_for_each(|condition| stream.follow(driver, *condition.last.lock()))
    }

    /// Writes the packets that set the values with which the launch begins.
    pub(crate) fn assign(&self, driver: &Driver, writing: &mut Writing) -> Result<(), SubmitError> {
        let mut conditions = self.all.values();
        conditions.try_for_each(|condition| condition.assign(driver, writing))
    }

    /// Notes that the graph was launched.
    pub(crate) fn note(&self, driver: &Driver, plan: &Plan) {
        if self.all.is_empty() {
            return;
        }
        for condition in self.all.values() {
            *condition.last.lock() = plan.last;
        }
        let mut branches = Vec::new();
        plan.add_branches(&mut branches);
        let mut running = self.conditions.running.lock();
        for branch in branches {
            match running.iter_mut().find(|(_, it)| Arc::ptr_eq(it, &branch)) {
                Some((last, _)) => *last = plan.last,
                None => running.push((plan.last, branch)),
            }
        }
        let are_many = running.len() > RUNNING_USUAL;
        drop(running);
        if are_many {
            self.conditions.forget_done(driver);
        }
    }
}

impl Graph {
    /// Returns whether a condition that was made for it, or for a graph within it, has no node.
    pub(crate) fn has_unused_condition(&self) -> bool {
        let conditions = self.conditions.lock();
        let is_unused = |made: &Arc<Condition>| !made.has_node.load(Ordering::Relaxed);
        if conditions.iter().any(is_unused) {
            return true;
        }
        drop(conditions);
        let (_, within) = self.members();
        within.iter().any(|graph| graph.has_unused_condition())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphConditionalHandleCreate(
    handle: Out<u64>,
    graph: usize,
    context: usize,
    default: u32,
    flags: u32,
) -> u32 {
    call_in_context(|driver, current| {
        if handle.is_null() || flags & !ASSIGN_DEFAULT != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let graph = graph::find(driver, graph)?;
        let context = match context {
            0 => current.handle,
            given => given,
        };
        let context = context::find(driver, context).map_err(|_| Code::INVALID_VALUE)?;
        let default = (flags & ASSIGN_DEFAULT != 0).then_some(default);
        let conditions = &driver.conditions;
        let made = conditions.make(driver, (graph.handle, context), default)?;
        let found = made.handle();
        graph.conditions.lock().push(made);
        handle.set(found)
    })
}
