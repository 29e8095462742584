//! Calls about conditional nodes and about nodes of any kind: what is refused, and what they show.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod conditions;

use std::ffi::CString;
use std::ptr::{null, null_mut};

use causeway_cuda_tests::library;
use conditions::code::{INVALID_VALUE, NOT_SUPPORTED, cuCtxCreate_v2, cuCtxDestroy_v2};
use conditions::*;

const INVALID_STRUCTURE: u32 = 2;
const UNUSED_CONDITION: u32 = 5;

const HOST: u32 = 3;
const EVENT_WAIT: u32 = 6;
const EVENT_RECORD: u32 = 7;
const ALLOCATE: u32 = 10;
const FREE: u32 = 11;

/// `CUDA_MEMSET_NODE_PARAMS_v2`
#[derive(Clone, Copy)]
#[repr(C)]
struct Fill {
    destination: u64,
    pitch: u64,
    value: u32,
    element_bytes: u32,
    width: u64,
    height: u64,
    context: usize,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[derive(Default)]
#[repr(C)]
struct Instantiation {
    flags: u64,
    stream: usize,
    node: usize,
    result: u32,
}

unsafe extern "C" {
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuGraphAddNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        parameters: *mut Node,
    ) -> u32;
    fn cuGraphDebugDotPrint(graph: usize, path: *const i8, flags: u32) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
    fn cuGraphDestroyNode(node: usize) -> u32;
    fn cuGraphExecNodeSetParams(executable: usize, node: usize, given: *mut Node) -> u32;
    fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphInstantiateWithParams(
        executable: *mut usize,
        graph: usize,
        given: *mut Instantiation,
    ) -> u32;
    fn cuGraphNodeGetType(node: usize, kind: *mut u32) -> u32;
    fn cuGraphNodeSetParams(node: usize, given: *mut Node) -> u32;
}

#[test]
fn wrong_conditions_are_refused() {
    library();
    let (graph, mut handle) = (graph(), 0);
    let into = &raw mut handle;
    // SAFETY: the pointer is valid for the call, or null; handles may be wrong.
    let make = |into, graph, context, flags| unsafe {
        cuGraphConditionalHandleCreate(into, graph, context, 1, flags)
    };
    assert_eq!(make(null_mut(), graph, 0, 0), INVALID_VALUE);
    assert_eq!(make(into, graph, 0, 2), INVALID_VALUE);
    assert_eq!(make(into, graph + 1, 0, 0), INVALID_VALUE);
    assert_eq!(make(into, 0, 0, 0), INVALID_VALUE);
    assert_eq!(make(into, graph, 77, 0), INVALID_VALUE);
    assert_eq!(make(into, graph, 0, ASSIGN_DEFAULT), 0);
    assert_ne!(handle, 0);
}

#[test]
fn wrong_conditional_nodes_are_refused() {
    library();
    let (own, other) = (graph(), graph());
    let handle = condition(own, None);
    let add = |graph, given: Conditional| Node::with(CONDITIONAL, given).add(graph, &[]);
    let refused = Err(INVALID_VALUE);
    for (kind, size) in [(IF, 0), (IF, 3), (WHILE, 2), (SWITCH, 0), (3, 1), (99, 1)] {
        assert_eq!(add(own, conditional(handle, kind, size)), refused);
    }
    assert_eq!(add(own, conditional(handle, SWITCH, u32::MAX)), refused);
    for forged in [0, 1, handle + 4, handle + 8, u64::MAX] {
        assert_eq!(add(own, conditional(forged, IF, 1)), refused);
    }
    assert_eq!(add(other, conditional(handle, IF, 1)), refused);
    let elsewhere = Conditional {
        context: 77,
        ..conditional(handle, IF, 1)
    };
    assert_eq!(add(own, elsewhere), refused);
    // None of these has used it up, but one node does.
    assert!(add(own, conditional(handle, IF, 1)).is_ok());
    assert_eq!(add(own, conditional(handle, IF, 1)), refused);
    // SAFETY: a handle of the test.
    assert_eq!(unsafe { cuGraphDestroy(own) }, 0);
    assert_eq!(add(other, conditional(handle, IF, 1)), refused);
}

#[test]
fn a_condition_is_for_graphs_within_its_graph_too() {
    library();
    let outer = graph();
    let (first, second) = (condition(outer, None), condition(outer, None));
    let (_, bodies) = branch(outer, &[], (first, IF, 1));
    let (_, inner) = branch(bodies[0], &[], (second, IF, 1));
    assert!(instantiate(outer).is_ok());
    // But not the other way round.
    let third = condition(inner[0], None);
    let mut given = Node::with(CONDITIONAL, conditional(third, IF, 1));
    assert_eq!(given.add(outer, &[]), Err(INVALID_VALUE));
}

fn instantiation(graph: usize) -> (u32, u32) {
    let (mut executable, mut given) = (0, Instantiation::default());
    // SAFETY: pointers are valid for the call.
    let made = unsafe { cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut given) };
    (made, given.result)
}

#[test]
fn a_graph_with_a_condition_that_no_node_has_is_not_instantiated() {
    library();
    let graph = graph();
    let handle = condition(graph, None);
    assert_eq!(instantiate(graph), Err(INVALID_VALUE));
    assert_eq!(instantiation(graph), (INVALID_VALUE, UNUSED_CONDITION));
    let (_, bodies) = branch(graph, &[], (handle, IF, 1));
    assert_eq!(instantiation(graph), (0, 0));
    condition(bodies[0], None);
    assert_eq!(instantiation(graph), (INVALID_VALUE, UNUSED_CONDITION));
}

extern "C" fn nothing(_: usize) {}

#[test]
fn a_body_has_only_what_the_documentation_allows() {
    library();
    let mut event = 0_usize;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuEventCreate(&raw mut event, 0) }, 0);
    let function = nothing as extern "C" fn(usize) as usize;
    let nodes = [
        Node::with(HOST, function),
        Node::with(EVENT_WAIT, event),
        Node::with(EVENT_RECORD, event),
    ];
    for mut given in nodes {
        for is_nested in [false, true] {
            let graph = graph();
            let handle = condition(graph, None);
            let (_, bodies) = branch(graph, &[], (handle, SWITCH, 2));
            let place = if is_nested {
                let inner = condition(graph, None);
                branch(bodies[1], &[], (inner, WHILE, 1)).1[0]
            } else {
                bodies[1]
            };
            assert_eq!(instantiation(graph), (0, 0));
            given.add(place, &[]).unwrap();
            assert_eq!(instantiation(graph), (INVALID_VALUE, INVALID_STRUCTURE));
        }
    }
}

#[test]
fn conditional_nodes_are_shown() {
    library();
    let graph = graph();
    let handle = condition(graph, None);
    let (node, bodies) = branch(graph, &[], (handle, SWITCH, 2));
    Node::new(EMPTY).add(bodies[1], &[]).unwrap();
    let (mut kind, mut count) = (0, 0);
    let file = std::env::temp_dir().join(format!("causeway-dot-{}", std::process::id()));
    let path = CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuGraphNodeGetType(node, &raw mut kind), 0);
        assert_eq!(cuGraphGetNodes(bodies[1], null_mut(), &raw mut count), 0);
        assert_eq!(cuGraphDebugDotPrint(graph, path.as_ptr(), 0), 0);
        // They belong to the node, and end with it.
        assert_eq!(cuGraphDestroy(bodies[0]), INVALID_VALUE);
        assert_eq!(cuGraphDestroyNode(node), 0);
        let gone = cuGraphGetNodes(bodies[1], null_mut(), &raw mut count);
        assert_eq!(gone, INVALID_VALUE);
    }
    assert_eq!((kind, count), (CONDITIONAL, 1));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(text.contains("CONDITIONAL\\nSWITCH"), "{text}");
    assert!(text.contains(&format!("cluster_{}", bodies[1])), "{text}");
}

#[test]
fn graphs_of_conditional_nodes_are_nested_only_so_deep() {
    library();
    let outer = graph();
    let mut innermost = outer;
    let mut depth = 1;
    let refused = loop {
        let handle = condition(outer, None);
        let mut given = Node::with(CONDITIONAL, conditional(handle, IF, 1));
        match given.add(innermost, &[]) {
            Ok(_) => depth += 1,
            Err(code) => break code,
        }
        // SAFETY: the list belongs to the node.
        innermost = unsafe { *given.conditional().bodies };
    };
    assert_eq!((refused, depth), (NOT_SUPPORTED, 32));
}

const fn fill(destination: u64, value: u32) -> Fill {
    Fill {
        destination,
        pitch: 0,
        value,
        element_bytes: 4,
        width: 1,
        height: 1,
        context: 0,
    }
}

/// Returns parameters of a copy of a word.
fn copy(destination: u64, source: u64) -> Node {
    let mut node = Node::new(1);
    // Behind flags and context: source, destination, extent, in words.
    let [from, to] = [2, 2 + 11];
    for (at, address) in [(from, source), (to, destination)] {
        node.content[at + 4] = 4;
        node.content[at + 6] = address;
    }
    // `CUDA_MEMCPY3D`: both sides have 11 words.
    node.content[2 + 22] = 4;
    node.content[2 + 23] = 1;
    node.content[2 + 24] = 1;
    node
}

#[test]
fn nodes_of_any_kind_are_added_and_changed() {
    library();
    let (graph, words) = (graph(), words(4, 0));
    let mut event = 0_usize;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuEventCreate(&raw mut event, 0) }, 0);
    let filled = Node::with(MEMSET, fill(words, 5)).add(graph, &[]).unwrap();
    let copied = copy(words + 4, words).add(graph, &[filled]).unwrap();
    let recorded = Node::with(EVENT_RECORD, event)
        .add(graph, &[copied])
        .unwrap();
    let waited = Node::with(EVENT_WAIT, event)
        .add(graph, &[recorded])
        .unwrap();
    let function = nothing as extern "C" fn(usize) as usize;
    let called = Node::with(HOST, function).add(graph, &[waited]).unwrap();
    let added = launch(graph, &[called], c"add", &[words + 4, 10]);
    let executable = instantiate(graph).unwrap();
    run(executable);
    assert_eq!((get(words), get(words + 4)), (5, 15));

    let (mut newer, mut wrong) = (Node::with(MEMSET, fill(words, 7)), Node::new(HOST));
    // SAFETY: pointers are valid for the calls.
    unsafe {
        let set = cuGraphExecNodeSetParams(executable, filled, &raw mut newer);
        assert_eq!(set, 0);
        run(executable);
        assert_eq!((get(words), get(words + 4)), (7, 17));
        assert_eq!(cuGraphNodeSetParams(filled, &raw mut newer), 0);
        assert_eq!(cuGraphNodeSetParams(added, &raw mut newer), INVALID_VALUE);
        assert_eq!(cuGraphNodeSetParams(called, &raw mut wrong), INVALID_VALUE);
    }
    put(words, 0);
    run(instantiate(graph).unwrap());
    assert_eq!(get(words), 7);
}

#[test]
fn memory_is_allocated_and_freed_by_nodes_of_any_kind() {
    library();
    let (graph, word) = (graph(), words(1, 0));
    let mut given = Node::new(ALLOCATE);
    // `CUmemPoolProps` of pinned memory of device 0, 88 bytes; accesses, their number, size,
    // address.
    given.content[0] = 1;
    given.content[1] = 1;
    given.content[11 + 2] = 64;
    let allocated = given.add(graph, &[]).unwrap();
    let address = given.content[11 + 3];
    assert_ne!(address, 0);
    let filled = Node::with(MEMSET, fill(address, 9))
        .add(graph, &[allocated])
        .unwrap();
    let copied = copy(word, address).add(graph, &[filled]).unwrap();
    Node::with(FREE, address).add(graph, &[copied]).unwrap();
    run(instantiate(graph).unwrap());
    assert_eq!(get(word), 9);
    // SAFETY: the pointer is valid for the call.
    let set = unsafe { cuGraphNodeSetParams(allocated, &raw mut given) };
    assert_eq!(set, NOT_SUPPORTED);
}

#[test]
fn wrong_parameters_of_nodes_are_refused() {
    library();
    let (outer, inner) = (graph(), graph());
    let (mut node, mut other) = (0, 0);
    // SAFETY: pointers are valid for the calls, or null.
    unsafe {
        let mut add = |given: &mut Node| cuGraphAddNode(&raw mut node, outer, null(), 0, given);
        let none = cuGraphAddNode(&raw mut other, outer, null(), 0, null_mut());
        assert_eq!(none, INVALID_VALUE);
        for kind in [14, 99, u32::MAX] {
            assert_eq!(add(&mut Node::new(kind)), INVALID_VALUE, "{kind}");
        }
        for kind in [8, 9] {
            assert_eq!(add(&mut Node::new(kind)), NOT_SUPPORTED, "{kind}");
        }
        for at in 0..3 {
            let mut given = Node::new(EMPTY);
            given.reserved[at] = 1;
            assert_eq!(add(&mut given), INVALID_VALUE);
        }
        let mut given = Node::new(EMPTY);
        given.reserved_behind = 1;
        assert_eq!(add(&mut given), INVALID_VALUE);
        // A graph is copied, not moved.
        for (ownership, answer) in [(0, 0), (1, NOT_SUPPORTED), (2, INVALID_VALUE)] {
            let mut given = Node::with(CHILD, (inner, ownership as usize));
            assert_eq!(add(&mut given), answer, "{ownership}");
        }
        let mut given = copy(0x1000, 0x2000);
        given.content[0] = 1;
        assert_eq!(add(&mut given), INVALID_VALUE, "flags of a copy");
    }
}

#[test]
fn a_condition_of_another_context_is_that_contexts() {
    library();
    let (graph, mut context, mut handle) = (graph(), 0, 0);
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
    // SAFETY: the pointer is valid for the call.
    let made = unsafe { cuGraphConditionalHandleCreate(&raw mut handle, graph, context, 0, 0) };
    assert_eq!(made, 0);
    let given = Conditional {
        context,
        ..conditional(handle, IF, 1)
    };
    assert!(Node::with(CONDITIONAL, given).add(graph, &[]).is_ok());
    assert_eq!(cuCtxDestroy_v2(context), 0);
}

#[test]
fn a_graph_of_a_condition_copies_memory_that_only_the_processor_reaches() {
    library();
    let (outer, words, pageable) = (graph(), words(2, 0), [7_u32, 8]);
    let handle = condition(outer, Some(1));
    let (_, bodies) = branch(outer, &[], (handle, IF, 1));
    let address = pageable.as_ptr() as u64;
    let mut given = copy(words, address);
    let node = given.add(bodies[0], &[]).unwrap();
    let executable = instantiate(outer).unwrap();
    run(executable);
    assert_eq!((get(words), get(words + 4)), (7, 0));
    let mut newer = copy(words + 4, address + 4);
    // SAFETY: pointers are valid for the call.
    let set = unsafe { cuGraphExecNodeSetParams(executable, node, &raw mut newer) };
    assert_eq!(set, 0);
    run(executable);
    assert_eq!((get(words), get(words + 4)), (7, 8));
}
