//! Streams that wait for no other, which have rings of their own.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causeway_cuda_tests::library;

const NON_BLOCKING: u32 = 1;
const NOT_READY: u32 = 600;
/// `CU_STREAM_WAIT_VALUE_GEQ`
const REACHED: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: u32 = 2;
const WORDS: usize = 1024;
const BYTES: usize = 4 * WORDS;

unsafe extern "C" {
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32;
    fn cuStreamWriteValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphAddEventRecordNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        event: usize,
    ) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
    fn cuLaunchHostFunc(
        stream: usize,
        function: Option<extern "C" fn(usize)>,
        argument: usize,
    ) -> u32;
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: usize, end: usize) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemFreeAsync(address: u64, stream: usize) -> u32;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut u32, from: u64, bytes: usize) -> u32;
    fn cuMemcpyHtoD_v2(to: u64, from: *const u32, bytes: usize) -> u32;
    fn cuMemsetD32_v2(to: u64, value: u32, words: usize) -> u32;
    fn cuMemsetD32Async(to: u64, value: u32, words: usize, stream: usize) -> u32;
}

/// Calls functions whose pointers are valid for the call, and asserts that they succeed.
macro_rules! good {
    ($($call:expr;)*) => {
        // SAFETY: as above.
        $(assert_eq!(unsafe { $call }, 0, stringify!($call));)*
    };
}

/// One test at a time. The process ends if a test takes a minute: something waits for ever.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(60));
            eprintln!("the tests of rings wait for ever");
            std::process::exit(1);
        });
    });
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    library();
    guard
}

fn stream() -> usize {
    let mut stream = 0;
    good!(cuStreamCreate(&raw mut stream, NON_BLOCKING););
    stream
}

fn words() -> u64 {
    let mut address = 0;
    good!(cuMemAlloc_v2(&raw mut address, BYTES););
    address
}

fn read(address: u64) -> Vec<u32> {
    let mut words = vec![0; WORDS];
    good!(cuMemcpyDtoH_v2(words.as_mut_ptr(), address, BYTES););
    words
}

/// Waits until the `AtomicBool` at an address is set.
extern "C" fn wait_for(flag: usize) {
    // SAFETY: tests give the address of a static.
    let flag = unsafe { &*(flag as *const AtomicBool) };
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Makes a stream wait until the flag is set.
fn hold(stream: usize, flag: &'static AtomicBool) {
    let flag = std::ptr::from_ref(flag) as usize;
    good!(cuLaunchHostFunc(stream, Some(wait_for), flag););
}

#[test]
fn a_stream_waits_for_a_value_that_another_stores_later() {
    let _alone = alone();
    let (waiting, storing, place, word) = (stream(), stream(), words(), words());
    good! {
        cuMemsetD32Async(word, 0, WORDS, waiting);
        cuStreamSynchronize(waiting);
        cuStreamWaitValue64_v2(waiting, word, 5, REACHED);
        cuMemsetD32Async(place, 7, WORDS, waiting);
        cuMemsetD32Async(place, 3, WORDS, storing);
        cuStreamSynchronize(storing);
    }
    assert_eq!(read(place), [3; WORDS], "the other stream still waits");
    good! {
        cuStreamWriteValue64_v2(storing, word, 5, 0);
        cuStreamSynchronize(waiting);
    }
    assert_eq!(read(place), [7; WORDS]);
}

#[test]
fn a_function_of_one_stream_holds_up_no_other() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (held, free, place) = (stream(), stream(), words());
    hold(held, &GO);
    good! {
        cuMemsetD32Async(place, 9, WORDS, free);
        cuStreamSynchronize(free);
    }
    // SAFETY: any handle is allowed.
    assert_eq!(unsafe { cuStreamQuery(held) }, NOT_READY);
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(held););
}

#[test]
fn streams_wait_for_events_of_each_other() {
    const ROUNDS: usize = 200;
    let _alone = alone();
    let (first, second, place, all) = (stream(), stream(), words(), words());
    let mut events = [0; 2];
    for event in &mut events {
        // Without timing, so that a record is no work of its own.
        good!(cuEventCreate(event, 2););
    }
    let [filled, copied] = events;
    for round in 0..ROUNDS {
        good! {
            cuMemsetD32Async(place, round as u32, WORDS, first);
            cuEventRecord(filled, first);
            cuStreamWaitEvent(second, filled, 0);
            cuMemcpyDtoDAsync_v2(all + 4 * round as u64, place, 4, second);
            cuEventRecord(copied, second);
            cuStreamWaitEvent(first, copied, 0);
        }
    }
    good!(cuStreamSynchronize(second););
    let found = read(all);
    assert!(
        (0..ROUNDS).all(|round| found[round] == round as u32),
        "{found:?}"
    );
}

/// What comes behind an event in its own stream holds up nobody who waits for the event.
#[test]
fn an_event_happens_before_what_follows_it() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (first, second, place) = (stream(), stream(), words());
    let mut event = 0;
    good! {
        cuEventCreate(&raw mut event, 2);
        cuMemsetD32Async(place, 1, WORDS, first);
        cuEventRecord(event, first);
    }
    hold(first, &GO);
    good! {
        cuStreamWaitEvent(second, event, 0);
        cuMemsetD32Async(place, 2, WORDS, second);
        cuStreamSynchronize(second);
    }
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(first););
    assert_eq!(read(place), [2; WORDS]);
}

#[test]
fn freed_memory_is_another_streams_only_when_nobody_uses_it() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (using, next) = (stream(), stream());
    let old = words();
    hold(using, &GO);
    good! {
        cuMemsetD32Async(old, 7, WORDS, using);
        cuMemFreeAsync(old, using);
    }
    let new = words();
    good! {
        cuMemsetD32Async(new, 1, WORDS, next);
        cuStreamSynchronize(next);
    }
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(using););
    assert_eq!(read(new), [1; WORDS]);
}

/// As with NVIDIA's driver, a program may then read what any stream has written.
#[test]
fn memory_is_freed_when_all_streams_are_done() {
    static GO: AtomicBool = AtomicBool::new(false);
    static FREED: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (held, place, other) = (stream(), words(), words());
    hold(held, &GO);
    good!(cuMemsetD32Async(place, 8, WORDS, held););
    let free = std::thread::spawn(move || {
        library();
        good!(cuMemFree_v2(other););
        FREED.store(true, Ordering::Release);
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!FREED.load(Ordering::Acquire));
    GO.store(true, Ordering::Release);
    free.join().unwrap();
    assert_eq!(read(place), [8; WORDS]);
}

#[test]
fn launches_of_one_graph_do_not_overlap() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (first, second, place) = (stream(), stream(), words());
    let (mut graph, mut executable) = (0, 0);
    good! {
        cuStreamBeginCapture_v2(first, RELAXED);
        cuMemsetD32Async(place, 4, WORDS, first);
        cuStreamEndCapture(first, &raw mut graph);
        cuGraphInstantiateWithFlags(&raw mut executable, graph, 0);
    }
    hold(first, &GO);
    good! {
        cuGraphLaunch(executable, first);
        cuGraphLaunch(executable, second);
    }
    std::thread::sleep(Duration::from_millis(50));
    // SAFETY: any handle is allowed.
    assert_eq!(unsafe { cuStreamQuery(second) }, NOT_READY);
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(second););
    assert_eq!(read(place), [4; WORDS]);
}

#[test]
fn work_begins_behind_copies_and_fills_that_are_not_asynchronous() {
    static GO: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    let _alone = alone();
    let (other, third, place, copy) = (stream(), stream(), words(), words());
    let fills: [&dyn Fn(); 2] = [
        &|| {
            good!(cuMemcpyHtoD_v2(place, [6; WORDS].as_ptr(), BYTES););
        },
        &|| {
            good!(cuMemsetD32_v2(place, 5, WORDS););
        },
    ];
    for (go, (fill, value)) in GO.iter().zip(fills.into_iter().zip([6, 5])) {
        hold(0, go);
        fill();
        good!(cuMemcpyDtoDAsync_v2(copy, place, BYTES, other););
        std::thread::sleep(Duration::from_millis(50));
        for stream in [other, third] {
            // One has work that waits, and one has none.
            let wanted = if stream == other { NOT_READY } else { 0 };
            // SAFETY: any argument is allowed.
            assert_eq!(unsafe { cuStreamQuery(stream) }, wanted);
        }
        go.store(true, Ordering::Release);
        good!(cuStreamSynchronize(other););
        assert_eq!(read(copy), [value; WORDS]);
    }
}

#[test]
fn many_streams_come_and_go() {
    let _alone = alone();
    let place = words();
    for round in 0..300 {
        let stream = stream();
        good! {
            cuMemsetD32Async(place, round, WORDS, stream);
            cuStreamSynchronize(stream);
            cuStreamDestroy_v2(stream);
        }
        // SAFETY: any handle is allowed. This one names another ring.
        let other = unsafe { cuStreamQuery(stream ^ 1) };
        assert_ne!(other, 0);
    }
    assert_eq!(read(place), [299; WORDS]);
}

/// An event that is recorded again in another stream tells the time of that.
#[test]
fn times_of_events_are_those_of_their_last_records() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (held, free) = (stream(), stream());
    let (mut first, mut again, mut milliseconds) = (0, 0, 0.0);
    good! {
        cuEventCreate(&raw mut first, 0);
        cuEventCreate(&raw mut again, 0);
    }
    hold(held, &GO);
    good! {
        cuEventRecord(again, held);
        cuEventRecord(first, free);
        cuEventRecord(again, free);
        cuStreamSynchronize(free);
    }
    std::thread::sleep(Duration::from_millis(100));
    GO.store(true, Ordering::Release);
    good! {
        cuStreamSynchronize(held);
        cuEventElapsedTime_v2(&raw mut milliseconds, first, again);
    }
    // Whatever the machine does meanwhile: the held stream came to the event only after the sleep.
    let mut late = 0.0;
    let mut last = 0;
    good! {
        cuEventCreate(&raw mut last, 0);
        cuEventRecord(last, held);
        cuStreamSynchronize(held);
        cuEventElapsedTime_v2(&raw mut late, again, last);
    }
    assert!(late >= 100.0, "{late} ms after, {milliseconds} ms between");
}

/// Captures what `work` submits to a stream, and returns the graph and its executable.
fn captured(stream: usize, work: impl FnOnce()) -> (usize, usize) {
    let (mut graph, mut executable) = (0, 0);
    good!(cuStreamBeginCapture_v2(stream, RELAXED););
    work();
    good! {
        cuStreamEndCapture(stream, &raw mut graph);
        cuGraphInstantiateWithFlags(&raw mut executable, graph, 0);
    }
    (graph, executable)
}

#[test]
fn memory_that_a_graph_frees_is_another_streams_only_behind_the_graph() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (using, next) = (stream(), stream());
    let (mut old, mut new) = (0, 0);
    let (graph, executable) = captured(using, || {
        good!(cuMemAllocAsync(&raw mut old, BYTES, using););
    });
    good! {
        cuGraphLaunch(executable, using);
        cuStreamSynchronize(using);
        cuGraphExecDestroy(executable);
        cuGraphDestroy(graph);
    }
    let (_, executable) = captured(using, || {
        hold(using, &GO);
        good! {
            cuMemsetD32Async(old, 7, WORDS, using);
            cuMemFreeAsync(old, using);
        }
    });
    good! {
        cuGraphLaunch(executable, using);
        cuMemAllocAsync(&raw mut new, BYTES, next);
        cuMemsetD32Async(new, 1, WORDS, next);
        cuStreamSynchronize(next);
    }
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(using););
    assert_eq!(read(new), [1; WORDS]);
}

#[test]
fn an_event_of_a_graph_happens_before_what_follows_the_graph() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (first, second) = (stream(), stream());
    let (mut event, mut graph, mut node, mut executable) = (0, 0, 0, 0);
    let none = std::ptr::null();
    good! {
        cuEventCreate(&raw mut event, 2);
        cuGraphCreate(&raw mut graph, 0);
        cuGraphAddEventRecordNode(&raw mut node, graph, none, 0, event);
        cuGraphInstantiateWithFlags(&raw mut executable, graph, 0);
        cuGraphLaunch(executable, first);
    }
    hold(first, &GO);
    good! {
        cuStreamWaitEvent(second, event, 0);
        cuStreamSynchronize(second);
    }
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(first););
}

/// More than the library has of the device, while work of another stream is under way.
#[test]
fn an_allocation_waits_for_no_stream() {
    static GO: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (held, free) = (stream(), stream());
    let mut place = 0;
    hold(held, &GO);
    good! {
        cuMemAllocAsync(&raw mut place, 300 << 20, free);
        cuMemsetD32Async(place, 5, WORDS, free);
        cuStreamSynchronize(free);
    }
    GO.store(true, Ordering::Release);
    good!(cuStreamSynchronize(held););
    assert_eq!(read(place), [5; WORDS]);
    good!(cuMemFree_v2(place););
}
