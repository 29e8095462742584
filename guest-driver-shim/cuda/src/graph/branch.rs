//! What launches execute of conditional nodes.
//!
//! In the ring of the stream, a thread of the library stands for the node
//! ([`crate::host_function`]). It reads the condition, submits the graph that is chosen to the ring for such graphs, and waits
//! for it. A conditional node within that graph is executed by the same thread, between what comes
//! before and what comes behind. A fault, or the end of the condition's context, ends a loop.

use std::sync::Arc;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::graph::node::{Conditional, Kind, Rule};
use crate::graph::plan::{Branch, Content, Difference, Plan};
use crate::host_function::look_until;
use crate::ring::Ring;

/// Looks at the fence of the ring between two sleeps: some microseconds.
const LOOKS: u32 = 1000;

/// A launch of some of the graphs, by a thread of the library.
struct Course<'d> {
    driver: &'d Driver,
    ring: &'d Ring,
}

impl Branch {
    pub(super) fn of(node: &Conditional) -> Answer<Self> {
        let bodies = node.bodies.iter().map(|body| Plan::within(body, true));
        Ok(Self {
            condition: Arc::clone(&node.condition),
            rule: node.rule,
            bodies: bodies.collect::<Answer<Vec<Plan>>>()?,
        })
    }

    /// Returns a node that does the same.
    pub(super) fn to_node(&self) -> Arc<Conditional> {
        let bodies = self.bodies.iter().map(Plan::to_graph);
        Conditional::new(Arc::clone(&self.condition), self.rule, bodies.collect())
    }

    /// Returns whether a graph of it has a node, in whatever depth.
    pub(super) fn has(&self, node: usize) -> bool {
        self.bodies.iter().any(|body| body.has(node))
    }

    /// Returns whether another one has as many graphs, for the same values.
    pub(super) fn is_like(&self, newer: &Self) -> bool {
        (self.rule, self.bodies.len()) == (newer.rule, newer.bodies.len())
    }

    /// Returns the first difference in the graphs that keeps this from becoming `newer`.
    pub(super) fn difference(&self, newer: &Self) -> Option<Difference> {
        let mut pairs = self.bodies.iter().zip(&newer.bodies);
        pairs.find_map(|(old, new)| old.difference(new))
    }

    /// Takes the condition of `newer`, and what the nodes of its graphs do.
    pub(super) fn update(&mut self, newer: Self) {
        self.condition = newer.condition;
        let pairs = self.bodies.iter_mut().zip(newer.bodies);
        pairs.for_each(|(old, new)| old.update(new));
    }

    /// Executes the node, on a thread of the library.
    pub(crate) fn run(&self, driver: &Driver) -> Answer {
        let ring = driver.rings.bodies().ok_or(Code::NOT_INITIALIZED)?;
        Course { driver, ring }.decide(self)
    }
}

impl<'d> Course<'d> {
    fn decide(&self, branch: &Branch) -> Answer {
        loop {
            let chosen = branch
                .rule
                .choose(branch.condition.value(), branch.bodies.len());
            let Some(chosen) = chosen else {
                return Ok(());
            };
            let mut waiting = Vec::new();
            self.follow(&branch.bodies[chosen], &mut waiting)?;
            self.submit(&mut waiting)?;
            if branch.rule != Rule::While {
                return Ok(());
            }
            if !branch.condition.context().is_alive() {
                return Err(Code::CONTEXT_IS_DESTROYED);
            }
            // A loop of nothing waits for no packet that would tell.
            self.driver.rings.glance(self.driver)?;
        }
    }

    /// Goes through a graph. Leaves the nodes in `waiting` that are not submitted yet.
    fn follow<'p>(&self, plan: &'p Plan, waiting: &mut Vec<&'p Kind>) -> Answer {
        plan.steps().try_for_each(|content| match content {
            Content::Node(kind) => {
                waiting.push(kind);
                Ok(())
            }
            Content::Graph(plan) => self.follow(plan, waiting),
            Content::Branch(branch) => {
                self.submit(waiting)?;
                self.decide(branch)
            }
        })
    }

    /// Submits nodes, and waits until the device is done with them.
    fn submit(&self, waiting: &mut Vec<&Kind>) -> Answer {
        if waiting.is_empty() {
            return Ok(());
        }
        let Self { driver, ring } = *self;
        let submission = ring.submit_and_announce(driver, |writing| {
            waiting.drain(..).try_for_each(|kind| kind.write(writing))
        })?;
        let is_done = || ring.fence().has_reached(submission.number);
        look_until(driver, || {
            (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                is_done()
            })
        })
    }
}
