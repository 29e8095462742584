//! The order in which nodes of a graph are executed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::error::{Answer, Code};

/// Returns the nodes such that each comes behind its dependencies; of several that could be next,
/// the oldest. A graph with a circle has no order.
///
/// The order depends on the edges and the order of creation alone, so that two graphs that were
/// built alike can be compared node by node.
pub(crate) fn order(dependencies: &BTreeMap<usize, &[usize]>) -> Answer<Vec<usize>> {
    let mut dependents: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ready = BinaryHeap::new();
    for (node, before) in dependencies {
        for other in *before {
            dependents.entry(*other).or_default().push(*node);
        }
        match before.len() {
            0 => ready.push(Reverse(*node)),
            count => drop(missing.insert(*node, count)),
        }
    }
    let mut ordered = Vec::with_capacity(dependencies.len());
    while let Some(Reverse(node)) = ready.pop() {
        ordered.push(node);
        for dependent in dependents.remove(&node).unwrap_or_default() {
            if let Some(count) = missing.get_mut(&dependent) {
                *count -= 1;
                if *count == 0 {
                    ready.push(Reverse(dependent));
                }
            }
        }
    }
    match ordered.len() == dependencies.len() {
        true => Ok(ordered),
        false => Err(Code::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(edges: &[(usize, &[usize])]) -> Answer<Vec<usize>> {
        order(&edges.iter().copied().collect())
    }

    #[test]
    fn nodes_come_behind_their_dependencies_and_the_oldest_first() {
        let diamond: &[(usize, &[usize])] = &[(1, &[]), (2, &[1]), (3, &[1]), (4, &[2, 3])];
        assert_eq!(ordered(diamond), Ok(vec![1, 2, 3, 4]));
        // Node 1 was made first, but waits for the last.
        let turned: &[(usize, &[usize])] = &[(1, &[4]), (2, &[]), (3, &[]), (4, &[3])];
        assert_eq!(ordered(turned), Ok(vec![2, 3, 4, 1]));
        assert_eq!(ordered(&[]), Ok(vec![]));
    }

    #[test]
    fn a_circle_has_no_order() {
        assert_eq!(ordered(&[(1, &[2]), (2, &[1])]), Err(Code::INVALID_VALUE));
        assert_eq!(
            ordered(&[(1, &[]), (2, &[1, 3]), (3, &[2])]),
            Err(Code::INVALID_VALUE)
        );
    }
}
