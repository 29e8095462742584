//! Conditional nodes: which of their graphs a launch executes, and how often (CUDA C++ Programming
//! Guide, "Conditional Graph Nodes").

use std::sync::Arc;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::graph::node::{Conditional, Kind, Rule};
use crate::graph::{Condition, Graph, Owner};
use crate::structures::ConditionalNode;

/// Most graphs of one node.
const BODIES_MAX: u32 = 1 << 16;

impl Rule {
    /// Returns the rule with this number, for a node of `size` graphs.
    fn of(number: u32, size: u32) -> Answer<Self> {
        match (number, size) {
            (0, 1 | 2) => Ok(Self::If),
            (1, 1) => Ok(Self::While),
            (2, 1..=BODIES_MAX) => Ok(Self::Switch),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns which of `count` graphs a value chooses.
    pub(crate) fn choose(self, value: u32, count: usize) -> Option<usize> {
        let chosen = match self {
            Self::If => usize::from(value == 0),
            Self::While if value == 0 => return None,
            Self::While => 0,
            Self::Switch => value as usize,
        };
        (chosen < count).then_some(chosen)
    }

    /// Returns the name, as descriptions of graphs have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::If => "IF",
            Self::While => "WHILE",
            Self::Switch => "SWITCH",
        }
    }
}

impl Conditional {
    pub(crate) fn new(condition: Arc<Condition>, rule: Rule, bodies: Vec<Arc<Graph>>) -> Arc<Self> {
        let handles = bodies.iter().map(|body| body.handle).collect();
        Arc::new(Self {
            condition,
            rule,
            bodies,
            handles,
        })
    }

    /// Returns the same with graphs of its own.
    pub(crate) fn duplicate(&self) -> Arc<Self> {
        let bodies = self.bodies.iter().map(|body| body.duplicate(true));
        Self::new(Arc::clone(&self.condition), self.rule, bodies.collect())
    }
}

/// Returns a conditional node for `graph`, and the address of the list of its graphs.
pub(crate) fn of_conditional(
    driver: &Driver,
    graph: &Graph,
    given: ConditionalNode,
) -> Answer<(Kind, usize)> {
    let rule = Rule::of(given.kind, given.size)?;
    let condition = driver.conditions.find(given.handle)?;
    let is_its_context = matches!(given.context, 0) || given.context == condition.context().handle;
    if !is_its_context || !condition.is_for(driver, graph) {
        return Err(Code::INVALID_VALUE);
    }
    condition.claim()?;
    let bodies = (0..given.size).map(|_| Graph::with(Owner::Node));
    let made = Conditional::new(condition, rule, bodies.collect());
    let list = made.handles.as_ptr() as usize;
    Ok((Kind::Conditional(made), list))
}

impl Kind {
    /// Refuses a node that may not be in a graph of a conditional node, as documented.
    pub(super) fn check_in_body(&self) -> Answer {
        match self {
            Self::Kernel(_)
            | Self::Copy { .. }
            | Self::Fill { .. }
            | Self::Child(_)
            | Self::Empty
            | Self::Conditional(_) => Ok(()),
            _ => {
                log::warn!(
                    "a graph of a conditional node has a node of type {}: only kernels, copies, \
                     fills, graphs, empty and conditional nodes may be there",
                    self.number()
                );
                Err(Code::INVALID_VALUE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_graphs_depends_on_the_rule() {
        let wrong = Err(Code::INVALID_VALUE);
        for (number, allowed, refused) in [
            (0, &[1, 2][..], &[0, 3, u32::MAX][..]),
            (1, &[1], &[0, 2, u32::MAX]),
            (2, &[1, 2, 3, BODIES_MAX], &[0, BODIES_MAX + 1, u32::MAX]),
            (3, &[], &[0, 1, 2]),
            (u32::MAX, &[], &[1]),
        ] {
            for size in allowed {
                assert!(Rule::of(number, *size).is_ok(), "{number} {size}");
            }
            for size in refused {
                assert_eq!(Rule::of(number, *size), wrong, "{number} {size}");
            }
        }
    }

    #[test]
    fn a_value_chooses_a_graph_or_none() {
        let chosen = |rule: Rule, count| [0, 1, 2, u32::MAX].map(|value| rule.choose(value, count));
        let (first, second) = (Some(0), Some(1));
        assert_eq!(chosen(Rule::If, 1), [None, first, first, first]);
        assert_eq!(chosen(Rule::If, 2), [second, first, first, first]);
        assert_eq!(chosen(Rule::While, 1), [None, first, first, first]);
        assert_eq!(chosen(Rule::Switch, 2), [first, second, None, None]);
    }
}
