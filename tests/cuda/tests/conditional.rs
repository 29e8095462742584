//! Graphs that decide while they run.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod conditions;

use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_cuda_tests::alone;
use conditions::code::{
    cuCtxSynchronize, cuGraphLaunch, cuModuleUnload, cuStreamCreate, cuStreamSynchronize, function,
};
use conditions::*;

unsafe extern "C" {
    fn cuGraphClone(clone: *mut usize, original: usize) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphExecNodeSetParams(executable: usize, node: usize, given: *mut Node) -> u32;
    fn cuGraphExecUpdate_v2(executable: usize, graph: usize, result: *mut [u64; 3]) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamBeginCaptureToGraph(
        stream: usize,
        graph: usize,
        dependencies: *const usize,
        edges: *const u64,
        count: usize,
        mode: u32,
    ) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuStreamGetCaptureInfo_v2(
        stream: usize,
        status: *mut u32,
        id: *mut u64,
        graph: *mut usize,
        dependencies: *mut *const usize,
        count: *mut usize,
    ) -> u32;
    fn cuStreamUpdateCaptureDependencies(
        stream: usize,
        dependencies: *const usize,
        count: usize,
        flags: u32,
    ) -> u32;
    fn cuUserObjectCreate(
        object: *mut usize,
        argument: usize,
        destroy: extern "C" fn(usize),
        references: u32,
        flags: u32,
    ) -> u32;
    fn cuGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) -> u32;
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: usize) -> u32;
}

/// `CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED` and `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`
/// Mode of a capture that forbids nothing to other threads, such as those of other tests.
const THREAD_LOCAL: u32 = 1;
const PARAMETERS_CHANGED: u64 = 5;
const UPDATE_FAILURE: u32 = 910;

/// Returns a graph that adds 1, 16, 256, … to a word as the `kind` of conditional node chooses its
/// first, second, third, … graph, and 2^24 behind it.
fn choice(kind: u32, size: u32, value: u32) -> (usize, u64) {
    let (graph, word) = (graph(), words(1, 0));
    let handle = condition(graph, None);
    let set = launch(graph, &[], c"set", &[handle, value.into()]);
    let (node, bodies) = branch(graph, &[set], (handle, kind, size));
    for (index, body) in bodies.iter().enumerate() {
        launch(*body, &[], c"add", &[word, 1 << (4 * index)]);
    }
    launch(graph, &[node], c"add", &[word, 1 << 24]);
    (graph, word)
}

#[test]
fn a_value_chooses_the_graph_that_is_executed() {
    let _alone = alone();
    const BEHIND: u32 = 1 << 24;
    for (kind, size, value, added) in [
        (IF, 1, 0, 0),
        (IF, 1, 1, 1),
        (IF, 1, u32::MAX, 1),
        (IF, 2, 0, 16),
        (IF, 2, 7, 1),
        (WHILE, 1, 0, 0),
        (SWITCH, 3, 0, 1),
        (SWITCH, 3, 1, 16),
        (SWITCH, 3, 2, 256),
        (SWITCH, 3, 3, 0),
        (SWITCH, 3, u32::MAX, 0),
    ] {
        let (graph, word) = choice(kind, size, value);
        let executable = instantiate(graph).unwrap();
        run(executable);
        assert_eq!(get(word), BEHIND + added, "{kind} {size} {value}");
    }
}

/// A loop that adds 1 to the second word as often as the first one says.
struct Loop {
    graph: usize,
    handle: u64,
    words: u64,
    count: usize,
}

fn counted(rounds: u32) -> Loop {
    let (graph, words) = (graph(), words(2, 0));
    put(words, rounds);
    let handle = condition(graph, Some(1));
    let (_, bodies) = branch(graph, &[], (handle, WHILE, 1));
    let add = launch(bodies[0], &[], c"add", &[words + 4, 1]);
    let count = launch(bodies[0], &[add], c"count", &[handle, words]);
    Loop {
        graph,
        handle,
        words,
        count,
    }
}

#[test]
fn a_loop_ends_when_its_condition_is_0_and_begins_with_the_default_each_time() {
    let _alone = alone();
    let made = counted(5);
    let executable = instantiate(made.graph).unwrap();
    run(executable);
    assert_eq!((get(made.words), get(made.words + 4)), (0, 5));
    put(made.words, 3);
    run(executable);
    assert_eq!((get(made.words), get(made.words + 4)), (0, 8));
}

#[test]
fn a_default_of_0_is_one_and_without_a_default_the_value_stays() {
    let _alone = alone();
    for (default, added) in [(Some(0), 0), (None, 1)] {
        let (graph, word) = (graph(), words(1, 0));
        let handle = condition(graph, default);
        let (node, bodies) = branch(graph, &[], (handle, IF, 1));
        launch(bodies[0], &[], c"add", &[word, 1]);
        launch(graph, &[node], c"set", &[handle, 1]);
        let executable = instantiate(graph).unwrap();
        run(executable);
        put(word, 0);
        run(executable);
        assert_eq!(get(word), added, "{default:?}");
    }
}

/// Adds what a loop does: 1 to the second or the third word, as the first is odd or even.
fn add_nested(graph: usize) -> u64 {
    let words = words(4, 0);
    put(words, 7);
    let (outer, inner) = (condition(graph, Some(1)), condition(graph, None));
    let (_, bodies) = branch(graph, &[], (outer, WHILE, 1));
    let body = bodies[0];
    let odd = launch(body, &[], c"is_odd", &[inner, words]);
    let (choice, choices) = branch(body, &[odd], (inner, IF, 2));
    launch(choices[0], &[], c"add", &[words + 4, 1]);
    launch(choices[1], &[], c"add", &[words + 8, 1]);
    let behind = launch(body, &[choice], c"add", &[words + 12, 1]);
    launch(body, &[behind], c"count", &[outer, words]);
    words
}

#[test]
fn conditional_nodes_may_be_in_others() {
    let _alone = alone();
    let graph = graph();
    let words = add_nested(graph);
    run(instantiate(graph).unwrap());
    let found = [0, 1, 2, 3].map(|index| get(words + 4 * index));
    assert_eq!(found, [0, 4, 3, 7]);
}

#[test]
fn a_graph_within_a_graph_and_a_clone_decide_too() {
    let _alone = alone();
    let child = graph();
    let words = add_nested(child);
    let outer = graph();
    let mut node = Node::with(CHILD, child);
    node.add(outer, &[]).unwrap();
    let mut clone = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuGraphClone(&raw mut clone, outer) }, 0);
    // SAFETY: handles of the test.
    assert_eq!(unsafe { cuGraphDestroy(outer) | cuGraphDestroy(child) }, 0);
    run(instantiate(clone).unwrap());
    assert_eq!((get(words + 4), get(words + 8)), (4, 3));
}

#[test]
fn a_graph_within_a_body_is_executed_as_part_of_it() {
    let _alone = alone();
    let (graph, inner, words) = (graph(), graph(), words(2, 0));
    put(words, 3);
    let first = launch(inner, &[], c"add", &[words + 4, 1]);
    launch(inner, &[first], c"add", &[words + 4, 16]);
    let handle = condition(graph, Some(1));
    let (_, bodies) = branch(graph, &[], (handle, WHILE, 1));
    let child = Node::with(CHILD, inner).add(bodies[0], &[]).unwrap();
    let empty = Node::new(EMPTY).add(bodies[0], &[child]).unwrap();
    launch(bodies[0], &[empty], c"count", &[handle, words]);
    run(instantiate(graph).unwrap());
    assert_eq!(get(words + 4), 3 * 17);
}

#[test]
fn a_node_of_a_body_gets_other_parameters() {
    let _alone = alone();
    let made = counted(4);
    let executable = instantiate(made.graph).unwrap();
    run(executable);
    let other = words(1, 2);
    with_kernel(kernel(c"count"), &[made.handle, other], |given| {
        // SAFETY: the pointer is valid for the call.
        let set = unsafe { cuGraphExecNodeSetParams(executable, made.count, given) };
        assert_eq!(set, 0);
    });
    run(executable);
    assert_eq!((get(made.words + 4), get(other)), (4 + 2, 0));
}

#[test]
fn an_update_takes_the_other_graphs_condition_and_default() {
    let _alone = alone();
    let build = |default, amount| {
        let (graph, word) = (graph(), words(1, 0));
        let handle = condition(graph, Some(default));
        let (_, bodies) = branch(graph, &[], (handle, SWITCH, 2));
        launch(bodies[0], &[], c"add", &[word, 1]);
        launch(bodies[1], &[], c"add", &[word, amount]);
        (graph, word)
    };
    let ((first, old_word), (second, word)) = (build(0, 0), build(1, 9));
    let executable = instantiate(first).unwrap();
    run(executable);
    let mut result = [0; 3];
    // SAFETY: the pointer is valid for the call.
    let update = |graph, result| unsafe { cuGraphExecUpdate_v2(executable, graph, result) };
    assert_eq!(update(second, &raw mut result), 0);
    // SAFETY: a handle of the test.
    assert_eq!(unsafe { cuGraphDestroy(second) }, 0);
    run(executable);
    assert_eq!((get(old_word), get(word)), (1, 9));

    // Another rule, or another number of graphs, is another graph.
    for (kind, size) in [(IF, 2), (SWITCH, 3)] {
        let third = graph();
        let handle = condition(third, None);
        branch(third, &[], (handle, kind, size));
        assert_eq!(update(third, &raw mut result), UPDATE_FAILURE);
        assert_eq!(result[0], PARAMETERS_CHANGED);
    }
}

#[test]
fn launches_of_executable_graphs_that_share_a_condition_follow_each_other() {
    let _alone = alone();
    const ROUNDS: u32 = 40;
    let made = counted(ROUNDS);
    let (first, second) = (
        instantiate(made.graph).unwrap(),
        instantiate(made.graph).unwrap(),
    );
    let other = words(1, ROUNDS);
    with_kernel(kernel(c"count"), &[made.handle, other], |given| {
        // SAFETY: the pointer is valid for the call.
        let set = unsafe { cuGraphExecNodeSetParams(second, made.count, given) };
        assert_eq!(set, 0);
    });
    let streams = [0; 2].map(|mut stream| {
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        stream
    });
    assert_eq!(cuGraphLaunch(first, streams[0]), 0);
    assert_eq!(cuGraphLaunch(second, streams[1]), 0);
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!((get(made.words), get(other)), (0, 0));
    assert_eq!(get(made.words + 4), 2 * ROUNDS);
}

#[test]
fn a_launch_goes_on_when_its_graph_and_its_code_are_gone() {
    let _alone = alone();
    let module = module();
    let (graph, words) = (graph(), words(2, 0));
    put(words, 200);
    let handle = condition(graph, Some(1));
    let (node, bodies) = branch(graph, &[], (handle, WHILE, 1));
    let add = |graph, dependencies: &[usize], name, values: &[u64]| {
        with_kernel(function(module, name), values, |node| {
            node.add(graph, dependencies).unwrap()
        })
    };
    add(bodies[0], &[], c"count", &[handle, words]);
    add(graph, &[node], c"add", &[words + 4, 7]);
    let executable = instantiate(graph).unwrap();
    assert_eq!(cuGraphLaunch(executable, 0), 0);
    // SAFETY: handles of the test.
    unsafe {
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
    }
    assert_eq!(cuModuleUnload(module), 0);
    // The next condition does not get the word of the one that is still in use.
    let other = counted(1);
    assert_ne!(other.handle, handle);
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!((get(words), get(words + 4)), (0, 7));
}

static IS_ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_: usize) {
    IS_ENDED.store(true, Ordering::SeqCst);
}

#[test]
fn an_object_of_a_body_ends_with_the_graphs() {
    let _alone = alone();
    let (graph, words) = (graph(), words(1, 200));
    let handle = condition(graph, Some(1));
    let (_, bodies) = branch(graph, &[], (handle, WHILE, 1));
    launch(bodies[0], &[], c"count", &[handle, words]);
    let (child, mut object) = (conditions::graph(), 0);
    // SAFETY: the pointer is valid for the call; the graphs take the references.
    unsafe {
        assert_eq!(cuUserObjectCreate(&raw mut object, 0, end, 2, 1), 0);
        assert_eq!(cuGraphRetainUserObject(child, object, 1, 1), 0);
        assert_eq!(cuGraphRetainUserObject(bodies[0], object, 1, 1), 0);
    }
    Node::with(CHILD, child).add(bodies[0], &[]).unwrap();
    let executable = instantiate(graph).unwrap();
    assert_eq!(cuGraphLaunch(executable, 0), 0);
    // SAFETY: handles of the test.
    unsafe {
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphDestroy(graph) | cuGraphDestroy(child), 0);
    }
    assert_eq!(cuCtxSynchronize(), 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !IS_ENDED.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "the object does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn conditional_nodes_are_made_in_captures() {
    let _alone = alone();
    let (mut stream, mut inner) = (0, 0);
    assert_eq!(cuStreamCreate(&raw mut stream, 0), 0);
    assert_eq!(cuStreamCreate(&raw mut inner, 0), 0);
    let words = words(2, 5);
    let (mut status, mut graph, mut count) = (0, 0, 0);
    let mut dependencies = null();
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
        assert_eq!(cuMemsetD32Async(words, 3, 1, stream), 0);
        let (id, of) = (std::ptr::null_mut(), &raw mut dependencies);
        let info = cuStreamGetCaptureInfo_v2(
            stream,
            &raw mut status,
            id,
            &raw mut graph,
            of,
            &raw mut count,
        );
        assert_eq!((info, status, count), (0, 1, 1));
        let handle = condition(graph, Some(1));
        let (node, bodies) = branch(graph, &[*dependencies], (handle, WHILE, 1));
        let set = cuStreamUpdateCaptureDependencies(stream, &raw const node, 1, 1);
        assert_eq!(set, 0);
        let begun = cuStreamBeginCaptureToGraph(inner, bodies[0], null(), null(), 0, THREAD_LOCAL);
        assert_eq!(begun, 0);
        let arguments = [handle, words];
        let pointers = [
            (&raw const arguments[0]).cast(),
            (&raw const arguments[1]).cast(),
        ];
        let launched = code::cuLaunchKernel(
            kernel(c"count"),
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            inner,
            pointers.as_ptr(),
            null(),
        );
        assert_eq!(launched, 0);
        let mut body = 0;
        assert_eq!(cuStreamEndCapture(inner, &raw mut body), 0);
        assert_eq!(body, bodies[0]);
        assert_eq!(cuMemsetD32Async(words + 4, 77, 1, stream), 0);
        assert_eq!(cuStreamEndCapture(stream, &raw mut graph), 0);
    }
    let executable = instantiate(graph).unwrap();
    assert_eq!(cuGraphLaunch(executable, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!((get(words), get(words + 4)), (0, 77));

    // A launch that is captured becomes a graph within the graph.
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuStreamEndCapture(stream, &raw mut graph), 0);
    }
    put(words + 4, 0);
    run(instantiate(graph).unwrap());
    assert_eq!((get(words), get(words + 4)), (0, 77));
}
