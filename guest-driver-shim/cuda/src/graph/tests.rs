use super::*;
use crate::graph::plan::{Difference, Plan};
use crate::work::Work;

fn fill(value: u32) -> Kind {
    let mut given = fill::given((0x1000, 64), (0, 4));
    given.value = value;
    Kind::Fill {
        given: Some(given),
        work: Work::Nothing,
    }
}

fn copy() -> Kind {
    Kind::Copy {
        given: Some(Box::new(copy::given(0x1000, 0x2000, 64))),
        work: Work::Nothing,
    }
}

/// Two nodes behind one, and one behind both.
fn diamond() -> (Arc<Graph>, [usize; 4]) {
    let graph = Graph::new();
    let first = graph.add(fill(1), &[]).unwrap();
    let left = graph.add(copy(), &[first]).unwrap();
    let right = graph.add(fill(2), &[first]).unwrap();
    let last = graph.add(Kind::Empty, &[left, right]).unwrap();
    (graph, [first, left, right, last])
}

#[test]
fn nodes_know_what_is_before_and_behind_them() {
    let (graph, [first, left, right, last]) = diamond();
    assert_eq!(graph.nodes(), [first, left, right, last]);
    assert_eq!(graph.roots(), [first]);
    assert_eq!(graph.dependents(first), [left, right]);
    let before: Vec<usize> = graph.ancestors(&[left]).into_iter().collect();
    assert_eq!(before, [first, left]);
    graph.remove(left).unwrap();
    assert_eq!(graph.edges(), [(first, right), (right, last)]);
    assert!(!graph.has(left));
    assert_eq!(graph.remove(left).err(), Some(Code::INVALID_VALUE));
}

#[test]
fn wrong_dependencies_are_refused() {
    let (graph, [first, left, ..]) = diamond();
    let (other, [foreign, ..]) = diamond();
    let wrong = Err(Code::INVALID_VALUE);
    assert_eq!(graph.add(Kind::Empty, &[foreign]), wrong);
    assert_eq!(graph.add(Kind::Empty, &[first, first]), wrong);
    assert_eq!(graph.add(Kind::Empty, &[0]), wrong);
    let wrong = Err(Code::INVALID_VALUE);
    assert_eq!(graph.connect(&[(first, left)]), wrong, "there is one");
    assert_eq!(graph.connect(&[(first, first)]), wrong);
    assert_eq!(graph.connect(&[(first, foreign)]), wrong);
    assert_eq!(graph.connect(&[(foreign, first)]), wrong);
    assert_eq!(graph.disconnect(&[(left, first)]), wrong);
    assert_eq!(
        graph.edges().len(),
        other.edges().len(),
        "nothing has changed"
    );
    assert_eq!(graph.nodes().len(), 4);
}

#[test]
fn several_edges_are_added_and_removed_together_or_not_at_all() {
    let (graph, [first, left, right, last]) = diamond();
    let edges = [(left, right), (first, last)];
    let twice = [(left, right), (left, right)];
    assert_eq!(graph.connect(&twice), Err(Code::INVALID_VALUE));
    graph.connect(&edges).unwrap();
    assert_eq!(graph.edges().len(), 6);
    let partly = [(left, right), (last, first)];
    assert_eq!(graph.disconnect(&partly), Err(Code::INVALID_VALUE));
    assert_eq!(graph.edges().len(), 6);
    graph.disconnect(&edges).unwrap();
    assert_eq!(graph.edges().len(), 4);
}

#[test]
fn a_graph_with_a_circle_has_no_plan() {
    let (graph, [first, .., last]) = diamond();
    graph.connect(&[(last, first)]).unwrap();
    assert_eq!(Plan::of(&graph).err(), Some(Code::INVALID_VALUE));
}

#[test]
fn a_node_keeps_its_kind() {
    let (graph, [first, left, ..]) = diamond();
    assert!(graph.replace(first, fill(9)).is_ok());
    assert_eq!(
        graph.replace(left, fill(9)).err(),
        Some(Code::INVALID_VALUE)
    );
    let number = graph.look(left, |node| node.kind.number());
    assert_eq!(number, Ok(1));
}

#[test]
fn a_clone_has_nodes_of_its_own() {
    let (graph, nodes) = diamond();
    let outer = Graph::new();
    let child = outer.add(Kind::Child(graph.duplicate(true)), &[]).unwrap();
    let clone = outer.duplicate(false);
    let inner = |of: &Graph| {
        let content = of.content.lock();
        match &content.values().next().unwrap().kind {
            Kind::Child(child) => Arc::clone(child),
            _ => panic!("not a graph"),
        }
    };
    let (first, second) = (inner(&outer), inner(&clone));
    assert!(first.is_child() && !clone.is_child());
    let all = [
        graph.nodes(),
        first.nodes(),
        second.nodes(),
        vec![child],
        clone.nodes(),
    ];
    let distinct: BTreeSet<usize> = all.iter().flatten().copied().collect();
    assert_eq!(distinct.len(), 14);
    assert_eq!(nodes.len(), second.nodes().len());
    let ends = |graph: &Graph| {
        let nodes = graph.nodes();
        let place = |node| nodes.iter().position(|other| *other == node);
        let edges = graph.edges().into_iter();
        let edges: Vec<_> = edges.map(|(from, to)| (place(from), place(to))).collect();
        edges
    };
    assert_eq!(ends(&graph), ends(&second));
}

#[test]
fn graphs_are_nested_only_so_deep() {
    let mut graph = Graph::new();
    let mut depth = 1;
    let refused = loop {
        let outer = Graph::new();
        match outer.add(Kind::Child(graph.duplicate(true)), &[]) {
            Ok(_) => depth += 1,
            Err(code) => break code,
        }
        graph = outer;
    };
    assert_eq!((refused, depth), (Code::NOT_SUPPORTED, DEPTH_MAX));
}

#[test]
fn a_plan_takes_the_parameters_of_a_graph_that_was_built_alike() {
    let (graph, [first, ..]) = diamond();
    let mut plan = Plan::of(&graph).unwrap();
    let (alike, [other, ..]) = diamond();
    alike.replace(other, fill(77)).unwrap();
    let newer = Plan::of(&alike).unwrap();
    assert_eq!(plan.difference(&newer), None);
    plan.update(newer);
    assert!(plan.step(first).is_ok(), "nodes keep their handles");
    assert!(plan.step(other).is_err());
    let made = plan.to_graph();
    let root = made.roots()[0];
    let value = made.look(root, |node| match &node.kind {
        Kind::Fill { given, .. } => given.map(|given| given.value),
        _ => None,
    });
    assert_eq!(value, Ok(Some(77)));
}

#[test]
fn a_plan_refuses_other_nodes_and_edges() {
    let (graph, [first, left, right, last]) = diamond();
    let plan = Plan::of(&graph).unwrap();
    let (other, [_, _, _, end]) = diamond();
    other.add(Kind::Empty, &[end]).unwrap();
    let difference = |graph: &Graph| plan.difference(&Plan::of(graph).unwrap());
    let more = Difference {
        reason: 2,
        node: 0,
        old_node: 0,
    };
    assert_eq!(difference(&other), Some(more));

    let (other, [one, two, three, four]) = diamond();
    other.connect(&[(two, three)]).unwrap();
    let edge = Difference {
        reason: 2,
        node: three,
        old_node: right,
    };
    assert_eq!(difference(&other), Some(edge));
    assert_ne!((one, four), (first, last));

    let other = Graph::new();
    let one = other.add(fill(1), &[]).unwrap();
    let two = other.add(fill(1), &[one]).unwrap();
    let three = other.add(fill(1), &[one]).unwrap();
    other.add(Kind::Empty, &[two, three]).unwrap();
    let kind = Difference {
        reason: 3,
        node: two,
        old_node: left,
    };
    assert_eq!(difference(&other), Some(kind));
}

#[test]
fn nodes_of_a_plan_change_within_their_kind_and_switch_off() {
    let (graph, [first, left, _, last]) = diamond();
    let outer = Graph::new();
    outer.add(Kind::Child(graph.duplicate(true)), &[]).unwrap();
    let mut plan = Plan::of(&graph).unwrap();
    plan.step(first).unwrap().replace(fill(5)).unwrap();
    let wrong = Err(Code::INVALID_VALUE);
    assert_eq!(plan.step(left).unwrap().replace(fill(5)), wrong);
    *plan.step(left).unwrap().switch().unwrap() = false;
    assert!(plan.step(last).unwrap().switch().is_err(), "an empty node");
    let made = plan.to_graph();
    let kinds: Vec<u32> = made
        .nodes()
        .iter()
        .map(|node| made.look(*node, |node| node.kind.number()).unwrap())
        .collect();
    assert_eq!(kinds, [2, 5, 2, 5]);
    let mut nested = Plan::of(&outer).unwrap();
    let (child, inner) = (outer.nodes()[0], outer.members().1[0].nodes()[0]);
    assert!(
        nested.step(inner).is_ok(),
        "nodes of nested graphs are found"
    );
    assert!(nested.step(child).unwrap().replace_graph(plan).is_ok());
}
