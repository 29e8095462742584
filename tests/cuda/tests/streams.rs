//! Streams, and functions of the program that they call.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use causeway_cuda_tests::{alone, library};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;
const NOT_READY: u32 = 600;
const NOT_PERMITTED: u32 = 800;

unsafe extern "C" {
    fn cuCtxGetCurrent(context: *mut usize) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamCreateWithPriority(stream: *mut usize, flags: u32, priority: i32) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamGetFlags(stream: usize, flags: *mut u32) -> u32;
    fn cuStreamGetPriority(stream: usize, priority: *mut i32) -> u32;
    fn cuStreamGetCtx(stream: usize, context: *mut usize) -> u32;
    fn cuStreamGetDevice(stream: usize, device: *mut i32) -> u32;
    fn cuStreamGetId(stream: usize, id: *mut u64) -> u32;
    fn cuStreamGetAttribute(stream: usize, attribute: u32, value: *mut [u8; 64]) -> u32;
    fn cuStreamSetAttribute(stream: usize, attribute: u32, value: *const [u8; 64]) -> u32;
    fn cuStreamCopyAttributes(destination: usize, source: usize) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuStreamAddCallback(
        stream: usize,
        function: Option<extern "C" fn(usize, u32, usize)>,
        argument: usize,
        flags: u32,
    ) -> u32;
    fn cuLaunchHostFunc(
        stream: usize,
        function: Option<extern "C" fn(usize)>,
        argument: usize,
    ) -> u32;
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventDestroy_v2(event: usize) -> u32;
}

fn stream() -> usize {
    let mut stream = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 1) }, 0);
    stream
}

/// Waits until the `AtomicBool` at an address is set.
extern "C" fn wait_for(flag: usize) {
    // SAFETY: tests give the address of a static.
    let flag = unsafe { &*(flag as *const AtomicBool) };
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

fn address<T>(of: &'static T) -> usize {
    std::ptr::from_ref(of) as usize
}

#[test]
fn a_stream_tells_what_it_was_made_with() {
    let _alone = alone();
    let (mut made, mut flags, mut priority, mut context) = (0, 9, 9, 0);
    let (mut current, mut device, mut id, mut other) = (0, 9, 0, 0);
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuStreamCreateWithPriority(&raw mut made, 1, -99), 0);
        assert_eq!(cuStreamGetFlags(made, &raw mut flags), 0);
        assert_eq!(cuStreamGetPriority(made, &raw mut priority), 0);
        assert_eq!((flags, priority), (1, -5), "brought into the range");
        assert_eq!(cuStreamGetCtx(made, &raw mut context), 0);
        assert_eq!(cuCtxGetCurrent(&raw mut current), 0);
        assert_eq!(context, current);
        assert_eq!(cuStreamGetDevice(made, &raw mut device), 0);
        assert_eq!(device, 0);
        assert_eq!(cuStreamGetId(made, &raw mut id), 0);
        assert_eq!(cuStreamGetId(0, &raw mut other), 0);
        assert_ne!(id, other);
        assert_eq!(cuStreamQuery(made), 0);
        assert_eq!(cuStreamDestroy_v2(made), 0);
    }
}

#[test]
fn wrong_streams_are_refused() {
    let _alone = alone();
    let gone = stream();
    let mut made = 0;
    // SAFETY: pointers are null or valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuStreamCreate(std::ptr::null_mut(), 0), INVALID_VALUE);
        assert_eq!(cuStreamCreate(&raw mut made, 2), INVALID_VALUE);
        assert_eq!(cuStreamDestroy_v2(gone), 0);
        for wrong in [gone, gone + 8, usize::MAX] {
            assert_eq!(cuStreamDestroy_v2(wrong), INVALID_HANDLE);
            assert_eq!(cuStreamSynchronize(wrong), INVALID_HANDLE);
            assert_eq!(cuStreamQuery(wrong), INVALID_HANDLE);
            assert_eq!(
                cuStreamGetFlags(wrong, std::ptr::null_mut()),
                INVALID_HANDLE
            );
            assert_eq!(cuLaunchHostFunc(wrong, Some(wait_for), 0), INVALID_HANDLE);
        }
        assert_eq!(
            cuStreamDestroy_v2(0),
            INVALID_HANDLE,
            "the default stream stays"
        );
        assert_eq!(cuStreamGetFlags(0, std::ptr::null_mut()), INVALID_VALUE);
    }
}

#[test]
fn attributes_are_kept_and_copied() {
    let _alone = alone();
    let (first, second) = (stream(), stream());
    let mut value = [0; 64];
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuStreamGetAttribute(first, 3, &raw mut value), 0);
        assert_eq!(value[0], 1, "the synchronization policy is automatic");
        value[0] = 2;
        assert_eq!(cuStreamSetAttribute(first, 3, &raw const value), 0);
        assert_eq!(
            cuStreamSetAttribute(first, 77, &raw const value),
            INVALID_VALUE
        );
        assert_eq!(cuStreamCopyAttributes(second, first), 0);
        let mut copied = [0; 64];
        assert_eq!(cuStreamGetAttribute(second, 3, &raw mut copied), 0);
        assert_eq!(copied, value);
    }
}

#[test]
fn a_function_is_called_in_the_order_of_the_stream() {
    static CALLS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    extern "C" fn note(argument: usize) {
        CALLS.lock().unwrap().push(argument);
    }
    let _alone = alone();
    let stream = stream();
    // SAFETY: the function takes any argument.
    unsafe {
        for argument in 0..100 {
            assert_eq!(cuLaunchHostFunc(stream, Some(note), argument), 0);
        }
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(*CALLS.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert_eq!(cuLaunchHostFunc(stream, None, 0), INVALID_VALUE);
    }
}

#[test]
fn a_callback_gets_its_stream_and_the_result() {
    static SEEN: Mutex<Option<(usize, u32, usize)>> = Mutex::new(None);
    extern "C" fn note(stream: usize, result: u32, argument: usize) {
        *SEEN.lock().unwrap() = Some((stream, result, argument));
    }
    let _alone = alone();
    let stream = stream();
    // SAFETY: the function takes any argument.
    unsafe {
        assert_eq!(
            cuStreamAddCallback(stream, Some(note), 42, 1),
            INVALID_VALUE
        );
        assert_eq!(cuStreamAddCallback(stream, Some(note), 42, 0), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
    }
    assert_eq!(*SEEN.lock().unwrap(), Some((stream, 0, 42)));
}

#[test]
fn a_function_that_calls_the_library_is_refused() {
    static WAITED: AtomicU32 = AtomicU32::new(0);
    static MADE: AtomicU32 = AtomicU32::new(0);
    extern "C" fn call(stream: usize) {
        // SAFETY: handles may be wrong.
        unsafe {
            WAITED.store(cuStreamSynchronize(stream), Ordering::Relaxed);
            MADE.store(cuCtxSynchronize(), Ordering::Relaxed);
        }
    }
    let _alone = alone();
    let stream = stream();
    // SAFETY: the function takes the handle of a stream.
    unsafe {
        assert_eq!(cuLaunchHostFunc(stream, Some(call), stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
    }
    assert_eq!(WAITED.load(Ordering::Relaxed), NOT_PERMITTED);
    assert_eq!(MADE.load(Ordering::Relaxed), NOT_PERMITTED);
}

#[test]
fn a_stream_is_busy_until_its_function_has_returned() {
    static FREE: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let (busy, idle, waiting) = (stream(), stream(), stream());
    let mut event = 0;
    // SAFETY: pointers are valid for the calls; the function takes the address of a flag.
    unsafe {
        assert_eq!(cuEventCreate(&raw mut event, 2), 0);
        assert_eq!(cuLaunchHostFunc(busy, Some(wait_for), address(&FREE)), 0);
        assert_eq!(cuEventRecord(event, busy), 0);
        assert_eq!(cuStreamQuery(busy), NOT_READY);
        assert_eq!(
            cuStreamQuery(0),
            0,
            "none of these waits for the default stream"
        );
        assert_eq!(cuStreamQuery(idle), 0);
        assert_eq!(cuStreamWaitEvent(waiting, event, 0), 0);
        assert_eq!(cuStreamQuery(waiting), NOT_READY, "it waits for the other");
        assert_eq!(cuStreamDestroy_v2(busy), 0, "its work goes on");
        FREE.store(true, Ordering::Release);
        assert_eq!(cuStreamSynchronize(waiting), 0);
        assert_eq!(cuStreamQuery(waiting), 0);
        assert_eq!(cuEventDestroy_v2(event), 0);
    }
}

#[test]
fn a_full_ring_behind_a_function_goes_on_when_it_returns() {
    static FREE: AtomicBool = AtomicBool::new(false);
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    const RECORDS: usize = 40_000;
    let _alone = alone();
    let stream = stream();
    let mut event = 0;
    // SAFETY: pointers are valid for the calls; the function takes the address of a flag.
    unsafe {
        assert_eq!(cuEventCreate(&raw mut event, 0), 0);
        assert_eq!(cuLaunchHostFunc(stream, Some(wait_for), address(&FREE)), 0);
        let writer = std::thread::spawn(move || {
            library();
            for _ in 0..RECORDS {
                assert_eq!(cuEventRecord(event, stream), 0);
                WRITTEN.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The writer gets stuck when the ring is full.
        let mut seen = usize::MAX;
        while seen != WRITTEN.load(Ordering::Relaxed) || seen == 0 {
            seen = WRITTEN.load(Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert!(seen < RECORDS, "the ring holds less");
        FREE.store(true, Ordering::Release);
        writer.join().unwrap();
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(cuEventDestroy_v2(event), 0);
    }
}
