//! Events of several processes.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod peer;

use causeway_cuda_tests::{library_for_children, library_of_child};

const INVALID_CONTEXT: u32 = 201;
const MAP_FAILED: u32 = 205;
const INVALID_HANDLE: u32 = 400;
const NOT_READY: u32 = 600;
const NOT_SUPPORTED: u32 = 801;
/// `CU_EVENT_DISABLE_TIMING`, and with `CU_EVENT_INTERPROCESS`
const UNTIMED: u32 = 2;
const SHARED: u32 = 2 | 4;
/// More than an event has words for.
const MANY: u64 = 1200;

/// `CUipcEventHandle`
#[derive(Clone, Copy)]
#[repr(C)]
struct Handle([u8; 64]);

unsafe extern "C" {
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventDestroy_v2(event: usize) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventQuery(event: usize) -> u32;
    fn cuEventSynchronize(event: usize) -> u32;
    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) -> u32;
    fn cuIpcGetEventHandle(handle: *mut Handle, event: usize) -> u32;
    fn cuIpcOpenEventHandle(event: *mut usize, handle: Handle) -> u32;
    fn cuMemHostAlloc(address: *mut *mut u32, bytes: usize, flags: u32) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphAddEventRecordNode(
        node: *mut usize,
        graph: usize,
        behind: *const usize,
        count: usize,
        event: usize,
    ) -> u32;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) -> u32;
}

/// Calls a function of the driver API, which must answer with a code.
macro_rules! answers {
    ($code:expr, $call:expr) => {
        // SAFETY: pointers are those of live variables; handles may be wrong.
        assert_eq!(unsafe { $call }, $code, "{}", stringify!($call))
    };
}

/// Calls a function of the driver API, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        answers!(0, $call)
    };
}

/// A stream whose work waits until it is let go.
struct Gated {
    stream: usize,
    word: *mut u32,
}

impl Gated {
    fn new() -> Self {
        let (mut stream, mut word) = (0, std::ptr::null_mut());
        ok!(cuStreamCreate(&raw mut stream, 1));
        ok!(cuMemHostAlloc(&raw mut word, 4, 0));
        let gated = Self { stream, word };
        gated.close();
        gated
    }

    fn close(&self) {
        // SAFETY: the word stays allocated.
        unsafe { self.word.write_volatile(0) };
        ok!(cuStreamWaitValue32_v2(self.stream, self.word as u64, 1, 0));
    }

    fn let_go(&self) {
        // SAFETY: the word stays allocated.
        unsafe { self.word.write_volatile(1) };
    }
}

impl Drop for Gated {
    /// After a failure, other tests go on.
    fn drop(&mut self) {
        self.let_go();
    }
}

fn event(flags: u32) -> usize {
    let mut event = 0;
    ok!(cuEventCreate(&raw mut event, flags));
    event
}

fn export(event: usize) -> Handle {
    let mut handle = Handle([0; 64]);
    ok!(cuIpcGetEventHandle(&raw mut handle, event));
    handle
}

fn open(handle: [u8; 64]) -> usize {
    let mut event = 0;
    ok!(cuIpcOpenEventHandle(&raw mut event, Handle(handle)));
    event
}

#[test]
fn another_process_waits_for_an_event_and_records_it() {
    library_for_children();
    let mut value = 0;
    ok!(cuDeviceGetAttribute(&raw mut value, 125, 0));
    assert_eq!(value, 1);
    let mut peer = peer::start("other_side", &[]);
    let (shared, gated) = (event(SHARED), Gated::new());
    ok!(cuEventQuery(shared));
    ok!(cuEventSynchronize(shared));
    let handle = export(shared);
    assert_eq!(export(shared).0, handle.0, "one export");
    peer.send(&handle.0);
    // The other side has opened it, and sees that it is not recorded.
    peer.meet();
    ok!(cuEventRecord(shared, gated.stream));
    answers!(NOT_READY, cuEventQuery(shared));
    peer.meet();
    // The other side waits, with a stream, too.
    peer.meet();
    gated.let_go();
    ok!(cuEventSynchronize(shared));
    ok!(cuEventQuery(shared));
    peer.meet();
    // The other side has recorded it, more often than it has words.
    peer.meet();
    answers!(NOT_READY, cuEventQuery(shared));
    let follower = Gated::new();
    follower.let_go();
    ok!(cuStreamWaitEvent(follower.stream, shared, 0));
    answers!(NOT_READY, cuStreamQuery(follower.stream));
    peer.meet();
    ok!(cuStreamSynchronize(follower.stream));
    ok!(cuEventSynchronize(shared));
    peer.meet();
    peer.finish();
    ok!(cuEventDestroy_v2(shared));
}

#[test]
#[ignore = "the other process"]
fn other_side() {
    let Some(mut parent) = peer::parent() else {
        return;
    };
    library_of_child();
    let handle = parent.receive();
    let shared = open(handle);
    assert_eq!(
        export(shared).0,
        handle,
        "it is passed on as it was received"
    );
    check_forged(handle);
    ok!(cuEventQuery(shared));
    parent.meet();
    parent.meet();
    answers!(NOT_READY, cuEventQuery(shared));
    let mut milliseconds = 0.0;
    answers!(
        INVALID_HANDLE,
        cuEventElapsedTime(&raw mut milliseconds, shared, shared)
    );
    let gated = Gated::new();
    gated.let_go();
    ok!(cuStreamWaitEvent(gated.stream, shared, 0));
    answers!(NOT_READY, cuStreamQuery(gated.stream));
    parent.meet();
    ok!(cuEventSynchronize(shared));
    ok!(cuStreamSynchronize(gated.stream));
    ok!(cuEventQuery(shared));
    parent.meet();
    gated.close();
    for _ in 0..MANY {
        ok!(cuEventRecord(shared, gated.stream));
    }
    answers!(NOT_READY, cuEventQuery(shared));
    parent.meet();
    parent.meet();
    gated.let_go();
    ok!(cuStreamSynchronize(gated.stream));
    parent.meet();
    ok!(cuEventDestroy_v2(shared));
}

fn check_forged(handle: [u8; 64]) {
    let mut event = 0;
    for forged in [[0; 64], [0xff; 64]] {
        answers!(
            MAP_FAILED,
            cuIpcOpenEventHandle(&raw mut event, Handle(forged))
        );
    }
    // The token, and the mark of this library.
    for at in [0, 31, 32] {
        let mut forged = handle;
        forged[at] ^= 1;
        answers!(
            MAP_FAILED,
            cuIpcOpenEventHandle(&raw mut event, Handle(forged))
        );
    }
    let nowhere = std::ptr::null_mut();
    answers!(1, cuIpcOpenEventHandle(nowhere, Handle(handle)));
}

#[test]
fn what_is_not_for_several_processes_is_refused() {
    library_for_children();
    let (plain, shared) = (event(UNTIMED), event(SHARED));
    let (mut opened, mut graph, mut node) = (0, 0, 0);
    let mut handle = Handle([0; 64]);
    answers!(INVALID_HANDLE, cuIpcGetEventHandle(&raw mut handle, plain));
    answers!(1, cuIpcGetEventHandle(&raw mut handle, 0));
    answers!(1, cuIpcGetEventHandle(std::ptr::null_mut(), shared));
    answers!(
        INVALID_CONTEXT,
        cuIpcOpenEventHandle(&raw mut opened, export(shared))
    );
    ok!(cuGraphCreate(&raw mut graph, 0));
    let (node, behind) = (&raw mut node, std::ptr::null());
    answers!(
        NOT_SUPPORTED,
        cuGraphAddEventRecordNode(node, graph, behind, 0, shared)
    );
    ok!(cuGraphAddEventRecordNode(node, graph, behind, 0, plain));
}

#[test]
fn an_event_may_end_before_its_work() {
    library_for_children();
    let (shared, gated) = (event(SHARED), Gated::new());
    ok!(cuEventRecord(shared, gated.stream));
    ok!(cuEventDestroy_v2(shared));
    // The next one has memory of its own.
    let next = event(SHARED);
    ok!(cuEventQuery(next));
    gated.let_go();
    ok!(cuStreamSynchronize(gated.stream));
    ok!(cuEventQuery(next));
}

/// Makes `waiter` wait for an event of a process that is then ended.
fn check_waiter(waiter: &str) {
    library_for_children();
    let mut maker = peer::start("maker", &[]);
    let mut waiter = peer::start(waiter, &[]);
    let handle: [u8; 64] = maker.receive();
    waiter.send(&handle);
    waiter.meet();
    maker.kill();
    waiter.meet();
    waiter.finish();
}

#[test]
fn a_wait_for_a_process_that_has_ended_fails() {
    check_waiter("waiting_process");
}

#[test]
fn a_stream_that_waits_for_a_process_that_has_ended_fails() {
    check_waiter("process_of_waiting_stream");
}

#[test]
#[ignore = "the other process"]
fn maker() {
    let Some(mut parent) = peer::parent() else {
        return;
    };
    library_of_child();
    let (shared, gated) = (event(SHARED), Gated::new());
    ok!(cuEventRecord(shared, gated.stream));
    parent.send(&export(shared).0);
    parent.receive::<1>();
}

/// Opens the event of the process that is ended.
fn start_of_waiter() -> Option<(peer::Peer, usize)> {
    let mut parent = peer::parent()?;
    library_of_child();
    let shared = open(parent.receive());
    answers!(NOT_READY, cuEventQuery(shared));
    Some((parent, shared))
}

#[test]
#[ignore = "the other process"]
fn waiting_process() {
    let Some((mut parent, shared)) = start_of_waiter() else {
        return;
    };
    let waiting = std::thread::spawn(move || {
        library_of_child();
        answers!(INVALID_HANDLE, cuEventSynchronize(shared));
    });
    parent.meet();
    parent.meet();
    waiting.join().unwrap();
    answers!(INVALID_HANDLE, cuEventQuery(shared));
    answers!(INVALID_HANDLE, cuEventRecord(shared, 0));
    answers!(INVALID_HANDLE, cuStreamWaitEvent(0, shared, 0));
    // Nothing else of the process is harmed.
    ok!(cuEventDestroy_v2(shared));
    ok!(cuStreamSynchronize(0));
}

#[test]
#[ignore = "the other process"]
fn process_of_waiting_stream() {
    let Some((mut parent, shared)) = start_of_waiter() else {
        return;
    };
    ok!(cuStreamWaitEvent(0, shared, 0));
    answers!(NOT_READY, cuStreamQuery(0));
    parent.meet();
    parent.meet();
    // SAFETY: the handle is right.
    assert_ne!(unsafe { cuStreamSynchronize(0) }, 0);
}
