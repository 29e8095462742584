//! What a launch of a graph executes: its nodes as they were when it was instantiated, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_shim_linux::shim::SubmitError;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::event::Recorded;
use crate::graph::node::Kind;
use crate::graph::order::order;
use crate::graph::{Graph, Node, Owner};
use crate::handles;
use crate::ring::Writing;
use crate::rings::Submission;
use crate::user_object::Held;

/// `CUgraphExecUpdateResult`
const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;

/// The nodes of a graph in an order that their dependencies allow.
pub(crate) struct Plan {
    steps: Vec<Step>,
    /// User objects to which it refers, by handle.
    objects: BTreeMap<usize, Held>,
    /// Its last launch, which another one follows.
    pub(crate) last: Submission,
}

/// A node of a plan.
pub(crate) struct Step {
    /// Handle of the node that it was made of.
    node: usize,
    content: Content,
    /// Positions of the nodes that come before, in rising order.
    dependencies: Vec<usize>,
    is_enabled: bool,
}

pub(crate) enum Content {
    Node(Kind),
    Graph(Plan),
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
    /// Returns the plan of a graph. One with a circle has none.
    pub(crate) fn of(graph: &Graph) -> Answer<Self> {
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
                content: Content::of(&node.kind)?,
                dependencies,
                is_enabled: true,
            })
        });
        let steps: Answer<Vec<Step>> = steps.collect();
        Ok(Self {
            steps: steps?,
            objects: graph.objects_again(),
            last: Submission::default(),
        })
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

    /// Calls `see` with what each enabled node does, in order.
    fn each(&self, see: &mut impl FnMut(&Kind)) {
        for content in self.steps() {
            match content {
                Content::Node(kind) => see(kind),
                Content::Graph(plan) => plan.each(see),
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
                Content::Node(_) => None,
            }
        })
    }

    /// Returns the first difference that keeps this from becoming `newer`.
    pub(crate) fn difference(&self, newer: &Self) -> Option<Difference> {
        if self.steps.len() != newer.steps.len() {
            return Some(Difference {
                reason: TOPOLOGY_CHANGED,
                node: 0,
                old_node: 0,
            });
        }
        let mut pairs = self.steps.iter().zip(&newer.steps);
        pairs.find_map(|(old, new)| old.difference(new))
    }

    /// Takes what the nodes of `newer` do, which has no [`Self::difference`]. Nodes keep their
    /// handles.
    pub(crate) fn update(&mut self, newer: Self) {
        for (old, new) in self.steps.iter_mut().zip(newer.steps) {
            match (&mut old.content, new.content) {
                (Content::Graph(old), Content::Graph(new)) => old.update(new),
                (old, new) => *old = new,
            }
        }
        self.objects = newer.objects;
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

impl Content {
    fn of(kind: &Kind) -> Answer<Self> {
        match kind {
            Kind::Child(graph) => Plan::of(graph).map(Self::Graph),
            kind => Ok(Self::Node(kind.clone())),
        }
    }

    const fn number(&self) -> u32 {
        match self {
            Self::Node(kind) => kind.number(),
            Self::Graph(_) => 4,
        }
    }
}

impl Step {
    fn difference(&self, newer: &Self) -> Option<Difference> {
        let because = |reason| {
            Some(Difference {
                reason,
                node: newer.node,
                old_node: self.node,
            })
        };
        if self.dependencies != newer.dependencies {
            return because(TOPOLOGY_CHANGED);
        }
        if self.content.number() != newer.content.number() {
            return because(NODE_TYPE_CHANGED);
        }
        match (&self.content, &newer.content) {
            (Content::Graph(old), Content::Graph(new)) => old.difference(new),
            _ => None,
        }
    }

    /// Gives the node other parameters of its kind.
    pub(crate) fn replace(&mut self, kind: Kind) -> Answer {
        match &mut self.content {
            Content::Node(old) if old.number() == kind.number() => {
                *old = kind;
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Gives a graph within the plan the parameters of another one like it.
    pub(crate) fn replace_graph(&mut self, newer: Plan) -> Answer {
        match &mut self.content {
            Content::Graph(old) if old.difference(&newer).is_none() => {
                old.update(newer);
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

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
