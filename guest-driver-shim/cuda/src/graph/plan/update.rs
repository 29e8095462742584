//! Changes of plans: what another graph's nodes do, or other parameters of a node.

use std::sync::Arc;

use super::{Content, Difference, Plan, Step};
use crate::error::{Answer, Code};
use crate::graph::node::Kind;

/// `CUgraphExecUpdateResult`
const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;
const PARAMETERS_CHANGED: u32 = 5;

impl Plan {
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
                (Content::Branch(old), Content::Branch(new)) => {
                    Arc::make_mut(old).update(Arc::unwrap_or_clone(new));
                }
                (old, new) => *old = new,
            }
        }
        self.objects = newer.objects;
    }
}

impl Content {
    const fn number(&self) -> u32 {
        match self {
            Self::Node(kind) => kind.number(),
            Self::Graph(_) => 4,
            Self::Branch(_) => 13,
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
            (Content::Branch(old), Content::Branch(new)) => match old.is_like(new) {
                true => old.difference(new),
                false => because(PARAMETERS_CHANGED),
            },
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
}
