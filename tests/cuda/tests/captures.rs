//! Stream capture: which graphs come of it, and which calls end it.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::{Mutex, MutexGuard};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;
const ILLEGAL_STATE: u32 = 401;
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const UNJOINED: u32 = 904;
const ISOLATION: u32 = 905;
const IMPLICIT: u32 = 906;
const CAPTURED_EVENT: u32 = 907;
const RELAXED: u32 = 2;

unsafe extern "C" {
    fn cuCtxSynchronize() -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
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
    fn cuStreamIsCapturing(stream: usize, status: *mut u32) -> u32;
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
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> u32;
    fn cuLaunchHostFunc(
        stream: usize,
        function: Option<extern "C" fn(usize)>,
        argument: usize,
    ) -> u32;
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventQuery(event: usize) -> u32;
    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) -> u32;
    fn cuEventRecordWithFlags(event: usize, stream: usize, flags: u32) -> u32;
    fn cuGraphAddEmptyNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
    ) -> u32;
    fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphGetEdges(graph: usize, from: *mut usize, to: *mut usize, count: *mut usize) -> u32;
    fn cuGraphNodeGetType(node: usize, kind: *mut u32) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
}

/// One test at a time: captures of one thread forbid calls of others.
fn alone() -> MutexGuard<'static, ()> {
    let guard = causeway_cuda_tests::alone();
    CALLS.lock().unwrap().clear();
    guard
}

static CALLS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn note(argument: usize) {
    CALLS.lock().unwrap().push(argument);
}

fn calls() -> Vec<usize> {
    CALLS.lock().unwrap().clone()
}

fn stream(flags: u32) -> usize {
    let mut stream = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, flags) }, 0);
    stream
}

fn event() -> usize {
    let mut event = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuEventCreate(&raw mut event, 0) }, 0);
    event
}

fn status(stream: usize) -> Result<u32, u32> {
    let mut status = 9;
    // SAFETY: the pointer is valid for the call.
    match unsafe { cuStreamIsCapturing(stream, &raw mut status) } {
        0 => Ok(status),
        code => Err(code),
    }
}

fn end(stream: usize) -> Result<usize, u32> {
    let mut graph = 7;
    // SAFETY: the pointer is valid for the call.
    match unsafe { cuStreamEndCapture(stream, &raw mut graph) } {
        0 => Ok(graph),
        code => {
            assert!(
                graph == 0 || code == ILLEGAL_STATE,
                "no graph of a failed capture"
            );
            Err(code)
        }
    }
}

fn nodes(graph: usize) -> Vec<usize> {
    let mut count = 0;
    // SAFETY: the first call asks for the room that the second one has.
    unsafe {
        assert_eq!(
            cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count),
            0
        );
        let mut nodes = vec![0; count];
        assert_eq!(
            cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count),
            0
        );
        nodes
    }
}

fn edges(graph: usize) -> usize {
    let mut count = 0;
    let null = std::ptr::null_mut();
    // SAFETY: the call asks for the count only.
    let told = unsafe { cuGraphGetEdges(graph, null, null, &raw mut count) };
    assert_eq!(told, 0);
    count
}

fn kind(node: usize) -> u32 {
    let mut kind = 99;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuGraphNodeGetType(node, &raw mut kind) }, 0);
    kind
}

#[test]
fn two_streams_become_one_graph_that_is_launched_twice() {
    let _alone = alone();
    let (origin, side, fork, join) = (stream(1), stream(1), event(), event());
    let mut executable = 0;
    // SAFETY: pointers are valid for the calls; the function takes any argument.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(origin, 0), 0);
        assert_eq!(cuLaunchHostFunc(origin, Some(note), 1), 0);
        assert_eq!(cuEventRecord(fork, origin), 0);
        assert_eq!(status(side), Ok(0));
        assert_eq!(cuStreamWaitEvent(side, fork, 0), 0);
        assert_eq!(status(side), Ok(1));
        assert_eq!(cuLaunchHostFunc(side, Some(note), 2), 0);
        assert_eq!(cuEventRecord(join, side), 0);
        assert_eq!(cuLaunchHostFunc(origin, Some(note), 3), 0);
        assert_eq!(cuStreamWaitEvent(origin, join, 0), 0);
        assert_eq!(cuLaunchHostFunc(origin, Some(note), 4), 0);
        assert_eq!(cuEventQuery(fork), CAPTURED_EVENT);
        let graph = end(origin).unwrap();
        assert_eq!((status(origin), status(side)), (Ok(0), Ok(0)));
        assert!(calls().is_empty(), "nothing runs in a capture");
        let nodes = nodes(graph);
        assert_eq!(
            nodes.iter().map(|node| kind(*node)).collect::<Vec<_>>(),
            [3; 4]
        );
        assert_eq!(edges(graph), 4);
        assert_eq!(
            cuGraphInstantiateWithFlags(&raw mut executable, graph, 0),
            0
        );
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(cuGraphLaunch(executable, side), 0);
        assert_eq!(cuGraphLaunch(executable, side), 0);
        assert_eq!(cuGraphExecDestroy(executable), 0, "launches go on");
        assert_eq!(cuStreamSynchronize(side), 0);
        assert_eq!(calls(), [1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(cuGraphDestroy(graph), INVALID_VALUE);
        assert_eq!(cuGraphLaunch(executable, side), INVALID_VALUE);
    }
}

#[test]
fn a_stream_that_is_not_joined_spoils_the_capture() {
    let _alone = alone();
    let (origin, side, fork) = (stream(1), stream(1), event());
    // SAFETY: handles are right; the function takes any argument.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(origin, 0), 0);
        assert_eq!(cuEventRecord(fork, origin), 0);
        assert_eq!(cuStreamWaitEvent(side, fork, 0), 0);
        assert_eq!(cuLaunchHostFunc(side, Some(note), 1), 0);
        assert_eq!(end(origin), Err(UNJOINED));
        assert_eq!((status(origin), status(side)), (Ok(0), Ok(0)));
        assert_eq!(cuStreamSynchronize(side), 0);
    }
    assert!(calls().is_empty());
    assert_eq!(end(origin), Err(ILLEGAL_STATE));
}

#[test]
fn calls_that_wait_end_a_capture() {
    let _alone = alone();
    let (captured, outside) = (stream(1), event());
    // SAFETY: handles are right; the function takes any argument.
    unsafe {
        assert_eq!(cuEventRecord(outside, captured), 0);
        type Call = unsafe extern "C" fn(usize) -> u32;
        let calls: [(Call, u32); 2] = [
            (cuStreamSynchronize as Call, UNSUPPORTED),
            (cuStreamQuery as Call, UNSUPPORTED),
        ];
        for (call, wanted) in calls {
            assert_eq!(cuStreamBeginCapture_v2(captured, RELAXED), 0);
            assert_eq!(call(captured), wanted);
            assert_eq!(status(captured), Ok(2));
            assert_eq!(cuLaunchHostFunc(captured, Some(note), 1), INVALIDATED);
            assert_eq!(end(captured), Err(INVALIDATED));
        }
        assert_eq!(cuStreamBeginCapture_v2(captured, RELAXED), 0);
        assert_eq!(cuCtxSynchronize(), UNSUPPORTED);
        assert_eq!(end(captured), Err(INVALIDATED));
        for (event, wanted) in [(outside, ISOLATION), (12345, INVALID_HANDLE)] {
            assert_eq!(cuStreamBeginCapture_v2(captured, RELAXED), 0);
            assert_eq!(cuStreamWaitEvent(captured, event, 0), wanted);
            assert_eq!(end(captured), Err(INVALIDATED));
        }
        assert_eq!(cuCtxSynchronize(), 0);
    }
}

#[test]
fn the_legacy_stream_does_not_wait_for_a_captured_stream() {
    let _alone = alone();
    let (blocking, free) = (stream(0), stream(1));
    // SAFETY: handles are right; the function takes any argument.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(0, RELAXED), UNSUPPORTED);
        assert_eq!(cuStreamBeginCapture_v2(free, RELAXED), 0);
        assert_eq!(status(0), Ok(0));
        assert_eq!(cuLaunchHostFunc(0, Some(note), 1), 0);
        end(free).unwrap();
        assert_eq!(cuStreamBeginCapture_v2(blocking, RELAXED), 0);
        assert_eq!(status(0), Err(IMPLICIT));
        assert_eq!(status(blocking), Ok(1), "the question ends nothing");
        assert_eq!(cuLaunchHostFunc(0, Some(note), 2), IMPLICIT);
        assert_eq!(end(blocking), Err(INVALIDATED));
        assert_eq!(cuStreamSynchronize(0), 0);
    }
    assert_eq!(calls(), [1]);
}

#[test]
fn unsafe_calls_end_a_capture_unless_the_thread_is_relaxed() {
    let _alone = alone();
    let (captured, other) = (stream(1), stream(1));
    let mut mode = RELAXED;
    // SAFETY: handles are right; pointers are valid for the calls.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(captured, 0), 0);
        assert_eq!(cuStreamQuery(other), UNSUPPORTED);
        assert_eq!(end(captured), Err(INVALIDATED));
        assert_eq!(cuStreamBeginCapture_v2(captured, 0), 0);
        assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), 0);
        assert_eq!(mode, 0);
        assert_eq!(cuStreamQuery(other), 0);
        assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), 0);
        assert_eq!(mode, RELAXED);
        mode = 3;
        assert_eq!(
            cuThreadExchangeStreamCaptureMode(&raw mut mode),
            INVALID_VALUE
        );
        end(captured).unwrap();
    }
}

#[test]
fn a_capture_shows_its_graph_and_takes_nodes_of_the_caller() {
    let _alone = alone();
    let captured = stream(1);
    let (mut state, mut id, mut graph, mut count) = (9, 0, 0, 0);
    let mut shown = std::ptr::null();
    let mut own = 0;
    // SAFETY: pointers are valid for the calls; what the library shows is read before the next
    // call.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(captured, RELAXED), 0);
        assert_eq!(cuLaunchHostFunc(captured, Some(note), 1), 0);
        let mut info = || {
            let answer = cuStreamGetCaptureInfo_v2(
                captured,
                &raw mut state,
                &raw mut id,
                &raw mut graph,
                &raw mut shown,
                &raw mut count,
            );
            assert_eq!((answer, state), (0, 1));
            (graph, std::slice::from_raw_parts(shown, count).to_vec())
        };
        let (graph, before) = info();
        assert_eq!(before, nodes(graph));
        assert_eq!(
            cuGraphAddEmptyNode(&raw mut own, graph, before.as_ptr(), 1),
            0
        );
        assert_eq!(
            cuStreamUpdateCaptureDependencies(captured, &raw const own, 1, 1),
            0
        );
        assert_eq!(info().1, [own]);
        assert_eq!(
            cuStreamUpdateCaptureDependencies(captured, before.as_ptr(), 1, 0),
            0
        );
        assert_eq!(info().1, [own, before[0]]);
        let wrong = own + 8;
        let refused = cuStreamUpdateCaptureDependencies(captured, &raw const wrong, 1, 0);
        assert_eq!(refused, INVALID_VALUE);
        assert_eq!(cuLaunchHostFunc(captured, Some(note), 2), 0);
        assert_eq!(end(captured), Ok(graph), "it is the graph that was shown");
        assert_eq!((nodes(graph).len(), edges(graph)), (3, 3));
        assert_ne!(id, 0);

        // More goes into the same graph.
        let last = nodes(graph)[2];
        let null = std::ptr::null();
        let again = cuStreamBeginCaptureToGraph(captured, graph, &raw const last, null, 1, RELAXED);
        assert_eq!(again, 0);
        assert_eq!(cuLaunchHostFunc(captured, Some(note), 3), 0);
        assert_eq!(end(captured), Ok(graph));
        assert_eq!((nodes(graph).len(), edges(graph)), (4, 4));
        assert_eq!(cuGraphDestroy(graph), 0);
    }
}

#[test]
fn a_launched_graph_becomes_a_node_and_external_events_get_times() {
    let _alone = alone();
    let (captured, start, end_of_work) = (stream(1), event(), event());
    let (mut inner, mut outer) = (0, 0);
    // SAFETY: pointers are valid for the calls; the function takes any argument.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(captured, RELAXED), 0);
        assert_eq!(cuEventRecordWithFlags(start, captured, 1), 0);
        assert_eq!(cuLaunchHostFunc(captured, Some(note), 5), 0);
        assert_eq!(cuEventRecordWithFlags(end_of_work, captured, 1), 0);
        let graph = end(captured).unwrap();
        let kinds: Vec<u32> = nodes(graph).iter().map(|node| kind(*node)).collect();
        assert_eq!(kinds, [7, 3, 7]);
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut inner, graph, 0), 0);
        assert_eq!(cuStreamBeginCapture_v2(captured, RELAXED), 0);
        assert_eq!(cuGraphLaunch(inner, captured), 0);
        assert_eq!(cuGraphLaunch(inner, captured), 0);
        let graph = end(captured).unwrap();
        let kinds: Vec<u32> = nodes(graph).iter().map(|node| kind(*node)).collect();
        assert_eq!(kinds, [4, 4]);
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut outer, graph, 0), 0);
        assert_eq!(cuGraphLaunch(outer, captured), 0);
        assert_eq!(cuStreamSynchronize(captured), 0);
        assert_eq!(calls(), [5, 5]);
        let mut elapsed = -1.0;
        assert_eq!(cuEventElapsedTime(&raw mut elapsed, start, end_of_work), 0);
        assert!(elapsed > 0.0);
    }
}

#[test]
fn a_stream_that_is_destroyed_ends_its_capture() {
    let _alone = alone();
    let (origin, side, fork) = (stream(1), stream(1), event());
    // SAFETY: handles are right.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(origin, 0), 0);
        assert_eq!(cuEventRecord(fork, origin), 0);
        assert_eq!(cuStreamWaitEvent(side, fork, 0), 0);
        assert_eq!(cuStreamDestroy_v2(origin), 0);
        assert_eq!(status(side), Ok(0));
        assert_eq!(cuCtxSynchronize(), 0, "nothing is being captured");
    }
}

#[test]
fn a_stream_whose_work_is_joined_may_be_destroyed() {
    let _alone = alone();
    for is_joined in [true, false] {
        let (origin, side) = (stream(1), stream(1));
        let (fork, join, mut graph) = (event(), event(), 0);
        // SAFETY: handles are right, pointers are valid for the calls.
        unsafe {
            assert_eq!(cuStreamBeginCapture_v2(origin, 0), 0);
            assert_eq!(cuEventRecord(fork, origin), 0);
            assert_eq!(cuStreamWaitEvent(side, fork, 0), 0);
            assert_eq!(cuLaunchHostFunc(side, Some(note), 1), 0);
            if is_joined {
                assert_eq!(cuEventRecord(join, side), 0);
                assert_eq!(cuStreamWaitEvent(origin, join, 0), 0);
            }
            assert_eq!(cuStreamDestroy_v2(side), 0);
            let ended = cuStreamEndCapture(origin, &raw mut graph);
            assert_eq!(ended == 0, is_joined, "{ended}");
            assert_eq!(cuStreamDestroy_v2(origin), 0);
        }
    }
}
