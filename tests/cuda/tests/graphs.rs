//! Graphs that a program builds node by node.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::Mutex;

use causeway_cuda_tests::alone;

const INVALID_VALUE: u32 = 1;
const UPDATE_FAILURE: u32 = 910;
const EMPTY: u32 = 5;

/// `CUDA_HOST_NODE_PARAMS`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct HostNode {
    /// Address of a function that takes the argument.
    function: usize,
    argument: usize,
}

/// `CUgraphExecUpdateResultInfo`
#[derive(Default)]
#[repr(C)]
struct UpdateResult {
    result: u32,
    node: usize,
    old_node: usize,
}

unsafe extern "C" {
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
    fn cuGraphClone(clone: *mut usize, original: usize) -> u32;
    fn cuGraphAddHostNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        given: *const HostNode,
    ) -> u32;
    fn cuGraphAddEmptyNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
    ) -> u32;
    fn cuGraphAddChildGraphNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        child: usize,
    ) -> u32;
    fn cuGraphChildGraphNodeGetGraph(node: usize, graph: *mut usize) -> u32;
    fn cuGraphAddDependencies(
        graph: usize,
        from: *const usize,
        to: *const usize,
        count: usize,
    ) -> u32;
    fn cuGraphDestroyNode(node: usize) -> u32;
    fn cuGraphNodeGetType(node: usize, kind: *mut u32) -> u32;
    fn cuGraphNodeGetDependencies(node: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphNodeFindInClone(node: *mut usize, original: usize, clone: usize) -> u32;
    fn cuGraphHostNodeGetParams(node: usize, params: *mut HostNode) -> u32;
    fn cuGraphHostNodeSetParams(node: usize, params: *const HostNode) -> u32;
    fn cuGraphExecHostNodeSetParams(executable: usize, node: usize, params: *const HostNode)
    -> u32;
    fn cuGraphGetRootNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphExecUpdate_v2(executable: usize, graph: usize, result: *mut UpdateResult) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphUpload(executable: usize, stream: usize) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
}

static CALLS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn note(argument: usize) {
    CALLS.lock().unwrap().push(argument);
}

fn host(argument: usize) -> HostNode {
    HostNode {
        function: note as *const () as usize,
        argument,
    }
}

fn graph() -> usize {
    let mut graph = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuGraphCreate(&raw mut graph, 0) }, 0);
    graph
}

fn add(graph: usize, dependencies: &[usize], argument: usize) -> usize {
    let (mut node, given) = (0, host(argument));
    let (before, count) = (dependencies.as_ptr(), dependencies.len());
    // SAFETY: pointers are valid for the call.
    let added =
        unsafe { cuGraphAddHostNode(&raw mut node, graph, before, count, &raw const given) };
    assert_eq!(added, 0);
    node
}

fn instantiate(graph: usize) -> Result<usize, u32> {
    let mut executable = 0;
    // SAFETY: the pointer is valid for the call.
    match unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) } {
        0 => Ok(executable),
        code => Err(code),
    }
}

/// Launches and waits. Returns the arguments of the calls.
fn launch(executable: usize) -> Vec<usize> {
    CALLS.lock().unwrap().clear();
    // SAFETY: handles are right.
    unsafe {
        assert_eq!(cuGraphUpload(executable, 0), 0);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(cuStreamSynchronize(0), 0);
    }
    CALLS.lock().unwrap().clone()
}

#[test]
fn nodes_run_behind_their_dependencies() {
    let _alone = alone();
    let graph = graph();
    let last = add(graph, &[], 3);
    let first = add(graph, &[], 1);
    let middle = add(graph, &[first], 2);
    let (mut roots, mut count) = ([0; 2], 2);
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(
            cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &raw mut count),
            0
        );
        assert_eq!((roots, count), ([last, first], 2));
        assert_eq!(
            cuGraphAddDependencies(graph, &raw const middle, &raw const last, 1),
            0
        );
        let again = cuGraphAddDependencies(graph, &raw const middle, &raw const last, 1);
        assert_eq!(again, INVALID_VALUE);
        count = 1;
        let one = cuGraphNodeGetDependencies(last, roots.as_mut_ptr(), &raw mut count);
        assert_eq!((one, roots[0], count), (0, middle, 1));
        assert_eq!(launch(instantiate(graph).unwrap()), [1, 2, 3]);
        assert_eq!(cuGraphDestroyNode(middle), 0);
        assert_eq!(cuGraphNodeGetType(middle, &mut 0), INVALID_VALUE);
        assert_eq!(
            launch(instantiate(graph).unwrap()),
            [3, 1],
            "no edge is left"
        );
        assert_eq!(
            cuGraphAddDependencies(graph, &raw const last, &raw const first, 1),
            0
        );
        assert_eq!(
            cuGraphAddDependencies(graph, &raw const first, &raw const last, 1),
            0
        );
        assert_eq!(instantiate(graph), Err(INVALID_VALUE), "a circle");
        assert_eq!(cuGraphDestroy(graph), 0);
    }
}

#[test]
fn an_executable_keeps_what_it_was_made_with_until_it_is_changed() {
    let _alone = alone();
    let (graph, mut found) = (graph(), host(0));
    let node = add(graph, &[], 10);
    let other = add(graph, &[node], 20);
    let executable = instantiate(graph).unwrap();
    // SAFETY: pointers are valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuGraphHostNodeSetParams(node, &host(11)), 0);
        assert_eq!(cuGraphHostNodeGetParams(node, &raw mut found), 0);
        assert_eq!(found, host(11));
        assert_eq!(launch(executable), [10, 20]);
        let change =
            |node, argument| cuGraphExecHostNodeSetParams(executable, node, &host(argument));
        assert_eq!(change(other, 21), 0);
        assert_eq!(change(executable, 22), INVALID_VALUE);
        assert_eq!(launch(executable), [10, 21]);
        let mut empty = 0;
        let null = std::ptr::null();
        assert_eq!(cuGraphAddEmptyNode(&raw mut empty, graph, null, 0), 0);
        assert_eq!(change(empty, 23), INVALID_VALUE, "it was added later");
        assert_eq!(
            cuGraphHostNodeGetParams(empty, &raw mut found),
            INVALID_VALUE
        );
        let mut result = UpdateResult::default();
        let more = cuGraphExecUpdate_v2(executable, graph, &raw mut result);
        assert_eq!((more, result.result, result.node), (UPDATE_FAILURE, 2, 0));
        assert_eq!(cuGraphDestroyNode(empty), 0);
        assert_eq!(cuGraphExecUpdate_v2(executable, graph, &raw mut result), 0);
        assert_eq!(result.result, 0);
        assert_eq!(launch(executable), [11, 20]);
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphLaunch(executable, 0), INVALID_VALUE);
    }
}

#[test]
fn an_update_says_which_node_is_of_another_kind() {
    let _alone = alone();
    let (graph, changed) = (graph(), graph());
    let node = add(graph, &[], 1);
    let executable = instantiate(graph).unwrap();
    let (mut empty, mut kind) = (0, 0);
    let mut result = UpdateResult::default();
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(
            cuGraphAddEmptyNode(&raw mut empty, changed, std::ptr::null(), 0),
            0
        );
        assert_eq!(cuGraphNodeGetType(empty, &raw mut kind), 0);
        assert_eq!(kind, EMPTY);
        let refused = cuGraphExecUpdate_v2(executable, changed, &raw mut result);
        assert_eq!(refused, UPDATE_FAILURE);
        let told = (result.result, result.node, result.old_node);
        assert_eq!(told, (3, empty, node));
        assert_eq!(launch(executable), [1]);
    }
}

#[test]
fn clones_and_children_are_graphs_of_their_own() {
    let _alone = alone();
    let (inner, outer) = (graph(), graph());
    let node = add(inner, &[], 1);
    let (mut clone, mut in_clone, mut child_node, mut child) = (0, 0, 0, 0);
    // SAFETY: pointers are valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuGraphClone(&raw mut clone, inner), 0);
        assert_eq!(cuGraphNodeFindInClone(&raw mut in_clone, node, clone), 0);
        assert_ne!(in_clone, node);
        assert_eq!(
            cuGraphNodeFindInClone(&raw mut in_clone, node, outer),
            INVALID_VALUE
        );
        let first = add(outer, &[], 7);
        let child_of = |node: &mut usize, graph| {
            cuGraphAddChildGraphNode(node, outer, &raw const first, 1, graph)
        };
        assert_eq!(child_of(&mut child_node, inner), 0);
        assert_eq!(cuGraphChildGraphNodeGetGraph(child_node, &raw mut child), 0);
        assert_eq!(
            cuGraphDestroy(child),
            INVALID_VALUE,
            "it belongs to the node"
        );
        assert_eq!(cuGraphHostNodeSetParams(node, &host(2)), 0);
        assert_eq!(launch(instantiate(outer).unwrap()), [7, 1]);
        add(child, &[], 3);
        assert_eq!(launch(instantiate(outer).unwrap()), [7, 1, 3]);
        assert_eq!(launch(instantiate(clone).unwrap()), [1]);
        assert_eq!(cuGraphDestroy(outer), 0);
        assert_eq!(instantiate(child), Err(INVALID_VALUE));
        assert_eq!(launch(instantiate(inner).unwrap()), [2]);
    }
}

#[test]
fn wrong_graphs_and_nodes_are_refused() {
    let _alone = alone();
    let (first, second) = (graph(), graph());
    let foreign = add(second, &[], 1);
    let (mut node, given) = (0, host(1));
    let null = std::ptr::null();
    // SAFETY: pointers are null or valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuGraphCreate(std::ptr::null_mut(), 0), INVALID_VALUE);
        assert_eq!(cuGraphCreate(&raw mut node, 1), INVALID_VALUE);
        let add = |graph, before, count, given| {
            cuGraphAddHostNode(&raw mut node, graph, before, count, given)
        };
        let mut add = add;
        assert_eq!(add(foreign, null, 0, &raw const given), INVALID_VALUE);
        assert_eq!(add(0, null, 0, &raw const given), INVALID_VALUE);
        assert_eq!(add(first, null, 0, std::ptr::null()), INVALID_VALUE);
        assert_eq!(
            add(first, &raw const foreign, 1, &raw const given),
            INVALID_VALUE
        );
        assert_eq!(add(second, null, 1, &raw const given), INVALID_VALUE);
        let too_many = usize::MAX;
        let refused = add(second, &raw const foreign, too_many, &raw const given);
        assert_eq!(refused, INVALID_VALUE, "the list is not read");
        assert_eq!(cuGraphDestroy(second), 0);
        assert_eq!(cuGraphNodeGetType(foreign, &mut 0), INVALID_VALUE);
        assert_eq!(cuGraphDestroyNode(foreign), INVALID_VALUE);
        assert_eq!(cuGraphExecDestroy(first), INVALID_VALUE);
    }
}
