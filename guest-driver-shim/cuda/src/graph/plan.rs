//! What a launch of a graph executes: its nodes as they were when it was instantiated, in order.

mod update;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use causeway_shim_linux::shim::SubmitError;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::event::Recorded;
use crate::graph::node::{Kind, Rule};
use crate::graph::order::order;
use crate::graph::{Condition, Graph, Node, Owner};
use crate::handles;
use crate::host_function::{HostCall, HostWork};
use crate::ring::Writing;
use crate::rings::Submission;
use crate::user_object::Held;

/// The nodes of a graph in an order that their dependencies allow.
pub(crate) struct Plan {
    steps: Vec<Step>,
    /// User objects to which it refers, by handle.
    objects: BTreeMap<usize, Held>,
    /// Its last launch, which another one follows.
    pub(crate) last: Submission,
}

/// A node of a plan.
#[derive(Clone)]
pub(crate) struct Step {
    /// Handle of the node that it was made of.
    node: usize,
    content: Content,
    /// Positions of the nodes that come before, in rising order.
    dependencies: Vec<usize>,
    is_enabled: bool,
}

#[derive(Clone)]
pub(crate) enum Content {
    Node(Kind),
    Graph(Plan),
    /// Launches that are under way share it: a change makes another one.
    Branch(Arc<Branch>),
}

/// A conditional node, with its graphs as they were when it was instantiated.
#[derive(Clone)]
pub(crate) struct Branch {
    pub(crate) condition: Arc<Condition>,
    pub(super) rule: Rule,
    pub(crate) bodies: Vec<Plan>,
}

/// Why a plan cannot become another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// `CUgraphExecUpdateResult`
    pub(crate) reason: u32,
    /// The node of the newer graph, and the one in its place; 0 if there is none.
    pub(crate) node: usize,
    pub(crate) old_node: usize,
}

impl Plan {
    /// Returns the plan of a graph. One with a circle has none, and one whose bodies of conditional
    /// nodes have what they may not.
    pub(crate) fn of(graph: &Graph) -> Answer<Self> {
        Self::within(graph, false)
    }

    /// Returns the plan of a graph that is one of a conditional node, or within such a one, if
    /// `is_body`.
    pub(super) fn within(graph: &Graph, is_body: bool) -> Answer<Self> {
        let content = graph.content.lock();
        let dependencies = content
            .iter()
            .map(|(handle, node)| (*handle, node.dependencies.as_slice()));
        let ordered = order(&dependencies.collect())?;
        let places = ordered.iter().enumerate();
        let places: BTreeMap<usize, usize> = places.map(|(place, node)| (*node, place)).collect();
        let steps = ordered.iter().map(|handle| {
            let node = &content[handle];
            let before = node.dependencies.iter().map(|node| places[node]);
            let mut dependencies: Vec<usize> = before.collect();
            dependencies.sort_unstable();
            Ok(Step {
                node: *handle,
                content: Content::of(&node.kind, is_body)?,
                dependencies,
                is_enabled: true,
            })
        });
        let steps: Answer<Vec<Step>> = steps.collect();
        let mut plan = Self {
            steps: steps?,
            objects: graph.objects_again(),
            last: Submission::default(),
        };
        plan.take_objects_of_branches();
        Ok(plan)
    }

    /// Takes the user objects of all graphs of conditional nodes. A launch that is under way keeps
    /// those graphs, but not their objects.
    fn take_objects_of_branches(&mut self) {
        let Self { steps, objects, .. } = self;
        for step in steps {
            if let Content::Branch(branch) = &mut step.content {
                let bodies = Arc::make_mut(branch).bodies.iter_mut();
                bodies.for_each(|body| body.give_objects(objects));
            }
        }
    }

    fn give_objects(&mut self, into: &mut BTreeMap<usize, Held>) {
        for (handle, held) in std::mem::take(&mut self.objects) {
            match into.entry(handle) {
                Entry::Vacant(place) => drop(place.insert(held)),
                Entry::Occupied(mut place) => place.get_mut().merge(held),
            }
        }
        for step in &mut self.steps {
            if let Content::Graph(plan) = &mut step.content {
                plan.give_objects(into);
            }
        }
    }

    /// Returns what is to be done, in order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &Content> {
        let enabled = self.steps.iter().filter(|step| step.is_enabled);
        enabled.map(|step| &step.content)
    }

    /// Writes the packets of all nodes.
    pub(crate) fn write(&self, writing: &mut Writing) -> Result<(), SubmitError> {
        self.steps().try_for_each(|content| match content {
            Content::Node(kind) => kind.write(writing),
            Content::Graph(plan) => plan.write(writing),
            Content::Branch(branch) => {
                let work = HostWork::Branch(Arc::clone(branch));
                HostCall { work }.write(writing)
            }
        })
    }

    /// Returns the work outside of the graph that its launch waits for.
    pub(crate) fn awaited(&self) -> Vec<Submission> {
        let mut all = Vec::new();
        self.each(&mut |kind| {
            if let Kind::Wait(event) = kind
                && let Recorded::At(submission) = event.recorded()
            {
                all.push(submission);
            }
        });
        all
    }

    /// Prepares the events that it records for a launch in `ring`.
    pub(crate) fn renew_events(&self, driver: &Driver, ring: u8) -> Answer {
        let mut answer = Ok(());
        self.each(&mut |kind| {
            if let Kind::Record(event) = kind {
                answer = answer.and_then(|()| event.renew(driver, ring));
            }
        });
        answer
    }

    /// Notes in the events that it records that they happen with a submission, and in the user
    /// objects that the submission may use them.
    pub(crate) fn set_recorded(&self, submission: Submission) {
        self.note_use(submission);
        self.each(&mut |kind| {
            if let Kind::Record(event) = kind {
                event.set_recorded(submission);
            }
        });
    }

    fn note_use(&self, submission: Submission) {
        let objects = self.objects.values();
        objects.for_each(|held| held.note_use(submission));
        for content in self.steps() {
            if let Content::Graph(plan) = content {
                plan.note_use(submission);
            }
        }
    }

    /// Calls `see` with what each enabled node does, in order. Nodes of conditional nodes are none
    /// of those for which callers look.
    fn each(&self, see: &mut impl FnMut(&Kind)) {
        for content in self.steps() {
            match content {
                Content::Node(kind) => see(kind),
                Content::Graph(plan) => plan.each(see),
                Content::Branch(_) => {}
            }
        }
    }

    /// Adds the conditional nodes that the thread of the ring executes.
    pub(crate) fn add_branches(&self, into: &mut Vec<Arc<Branch>>) {
        for content in self.steps() {
            match content {
                Content::Graph(plan) => plan.add_branches(into),
                Content::Branch(branch) => into.push(Arc::clone(branch)),
                Content::Node(_) => {}
            }
        }
    }

    /// Returns whether a launch executes conditional nodes.
    pub(crate) fn has_branches(&self) -> bool {
        let mut found = Vec::new();
        self.add_branches(&mut found);
        !found.is_empty()
    }

    /// Adds the conditions of all conditional nodes, in whatever depth, by handle.
    pub(crate) fn add_conditions(&self, into: &mut BTreeMap<u64, Arc<Condition>>) {
        for content in self.steps() {
            match content {
                Content::Graph(plan) => plan.add_conditions(into),
                Content::Branch(branch) => {
                    let condition = &branch.condition;
                    into.insert(condition.handle(), Arc::clone(condition));
                    let bodies = branch.bodies.iter();
                    bodies.for_each(|body| body.add_conditions(into));
                }
                Content::Node(_) => {}
            }
        }
    }

    /// Returns the step of a node, in whatever depth.
    pub(crate) fn step(&mut self, node: usize) -> Answer<&mut Step> {
        self.find(node).ok_or(Code::INVALID_VALUE)
    }

    fn find(&mut self, node: usize) -> Option<&mut Step> {
        self.steps.iter_mut().find_map(|step| {
            if step.node == node {
                return Some(step);
            }
            match &mut step.content {
                Content::Graph(plan) => plan.find(node),
                // Only if it is there: this may copy all bodies.
                Content::Branch(branch) if branch.has(node) => {
                    let mut bodies = Arc::make_mut(branch).bodies.iter_mut();
                    bodies.find_map(|body| body.find(node))
                }
                Content::Branch(_) | Content::Node(_) => None,
            }
        })
    }

    /// Returns whether it has a node, in whatever depth.
    pub(super) fn has(&self, node: usize) -> bool {
        self.steps.iter().any(|step| {
            step.node == node
                || match &step.content {
                    Content::Graph(plan) => plan.has(node),
                    Content::Branch(branch) => branch.has(node),
                    Content::Node(_) => false,
                }
        })
    }

    /// Returns a graph of the enabled and disabled nodes, for a node of a capture. A disabled node
    /// becomes an empty one.
    pub(crate) fn to_graph(&self) -> Arc<Graph> {
        let graph = Graph::with(Owner::Node);
        let names: Vec<usize> = self.steps.iter().map(|_| handles::fresh()).collect();
        let mut content = graph.content.lock();
        for (step, name) in self.steps.iter().zip(&names) {
            let kind = match (&step.content, step.is_enabled) {
                (_, false) => Kind::Empty,
                (Content::Node(kind), true) => kind.duplicate(),
                (Content::Graph(plan), true) => Kind::Child(plan.to_graph()),
                (Content::Branch(branch), true) => Kind::Conditional(branch.to_node()),
            };
            let dependencies = step.dependencies.iter().map(|place| names[*place]);
            let node = Node {
                kind,
                dependencies: dependencies.collect(),
                original: 0,
            };
            content.insert(*name, node);
        }
        drop(content);
        let objects = self.objects.iter();
        let again = objects.filter_map(|(handle, held)| Some((*handle, held.again().ok()?)));
        *graph.objects.lock() = again.collect();
        graph
    }
}

impl Clone for Plan {
    fn clone(&self) -> Self {
        let objects = self.objects.iter();
        let again = objects.filter_map(|(handle, held)| Some((*handle, held.again().ok()?)));
        Self {
            steps: self.steps.clone(),
            objects: again.collect(),
            last: self.last,
        }
    }
}

impl Content {
    fn of(kind: &Kind, is_in_body: bool) -> Answer<Self> {
        if is_in_body {
            kind.check_in_body()?;
        }
        match kind {
            Kind::Child(graph) => Plan::within(graph, is_in_body).map(Self::Graph),
            Kind::Conditional(node) => Branch::of(node).map(Arc::new).map(Self::Branch),
            kind => Ok(Self::Node(kind.clone())),
        }
    }
}

impl Step {
    /// Returns the switch of a node that may be switched off: a launch, a copy or a fill.
    pub(crate) fn switch(&mut self) -> Answer<&mut bool> {
        match &self.content {
            Content::Node(Kind::Kernel(_) | Kind::Copy { .. } | Kind::Fill { .. }) => {
                Ok(&mut self.is_enabled)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
