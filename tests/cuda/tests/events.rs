//! Events: times, order, and wrong uses.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::atomic::{AtomicBool, Ordering};

use causeway_cuda_tests::library;

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;
const ILLEGAL_STATE: u32 = 401;
const NOT_READY: u32 = 600;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

unsafe extern "C" {
    fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) -> u32;
    fn cuCtxDestroy_v2(context: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuLaunchHostFunc(
        stream: usize,
        function: Option<extern "C" fn(usize)>,
        argument: usize,
    ) -> u32;
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventDestroy_v2(event: usize) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventRecordWithFlags(event: usize, stream: usize, flags: u32) -> u32;
    fn cuEventQuery(event: usize) -> u32;
    fn cuEventSynchronize(event: usize) -> u32;
    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) -> u32;
    fn cuIpcGetEventHandle(handle: *mut [u8; 64], event: usize) -> u32;
}

fn event(flags: u32) -> usize {
    let mut event = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuEventCreate(&raw mut event, flags) }, 0);
    event
}

fn stream() -> usize {
    let mut stream = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 1) }, 0);
    stream
}

fn elapsed(start: usize, end: usize) -> Result<f32, u32> {
    let mut milliseconds = f32::NAN;
    // SAFETY: the pointer is valid for the call; handles may be wrong.
    match unsafe { cuEventElapsedTime(&raw mut milliseconds, start, end) } {
        0 => Ok(milliseconds),
        code => Err(code),
    }
}

/// Waits until the `AtomicBool` at an address is set.
extern "C" fn wait_for(flag: usize) {
    // SAFETY: tests give the address of a static.
    let flag = unsafe { &*(flag as *const AtomicBool) };
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

#[test]
fn the_time_between_two_events_is_that_of_the_work_between() {
    static FREE: AtomicBool = AtomicBool::new(false);
    library();
    let (start, end, stream) = (event(0), event(0), stream());
    // SAFETY: handles are right; the function takes the address of a flag.
    unsafe {
        assert_eq!(cuEventRecord(start, stream), 0);
        assert_eq!(
            elapsed(start, end),
            Err(INVALID_HANDLE),
            "one is not recorded"
        );
        let flag = std::ptr::from_ref(&FREE) as usize;
        assert_eq!(cuLaunchHostFunc(stream, Some(wait_for), flag), 0);
        assert_eq!(cuEventRecord(end, stream), 0);
        assert_eq!(cuEventQuery(end), NOT_READY);
        assert_eq!(elapsed(start, end), Err(NOT_READY));
        let pause = std::time::Duration::from_millis(10);
        std::thread::sleep(pause);
        FREE.store(true, Ordering::Release);
        assert_eq!(cuEventSynchronize(end), 0);
        assert_eq!(cuEventQuery(end), 0);
        let forth = elapsed(start, end).unwrap();
        // The start may have been late, but not as late as the function.
        assert!(forth > 0.0, "{forth} ms");
        assert_eq!(elapsed(end, start), Ok(-forth));
        assert_eq!(elapsed(end, end), Ok(0.0));
        // The same events once more: times are those of the last record.
        assert_eq!(cuEventRecord(start, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert!(elapsed(start, end).unwrap() <= 0.0);
    }
}

#[test]
fn an_event_that_was_not_recorded_has_happened_and_has_no_time() {
    library();
    let (timed, untimed, stream) = (event(0), event(DISABLE_TIMING), stream());
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuEventQuery(timed), 0);
        assert_eq!(cuEventSynchronize(timed), 0);
        assert_eq!(cuStreamWaitEvent(stream, timed, 0), 0);
        assert_eq!(cuEventRecord(timed, stream), 0);
        assert_eq!(cuEventRecord(untimed, stream), 0);
        assert_eq!(cuEventSynchronize(untimed), 0);
        assert_eq!(elapsed(timed, untimed), Err(INVALID_HANDLE));
        let null = std::ptr::null_mut();
        assert_eq!(cuEventElapsedTime(null, timed, timed), INVALID_HANDLE);
    }
}

#[test]
fn wrong_events_are_refused() {
    library();
    let (gone, stream) = (event(0), stream());
    let mut made = 0;
    let mut bytes = [0; 64];
    // SAFETY: pointers are null or valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuEventCreate(std::ptr::null_mut(), 0), INVALID_VALUE);
        assert_eq!(cuEventCreate(&raw mut made, 8), INVALID_VALUE);
        assert_eq!(cuEventCreate(&raw mut made, INTERPROCESS), INVALID_VALUE);
        assert_eq!(
            cuEventCreate(&raw mut made, INTERPROCESS | DISABLE_TIMING),
            0
        );
        assert_eq!(cuIpcGetEventHandle(&raw mut bytes, made), 0);
        assert_eq!(cuIpcGetEventHandle(&raw mut bytes, gone), INVALID_HANDLE);
        assert_eq!(cuEventRecordWithFlags(made, stream, 2), INVALID_VALUE);
        assert_eq!(
            cuEventRecordWithFlags(made, stream, 1),
            ILLEGAL_STATE,
            "only in a capture"
        );
        assert_eq!(cuEventDestroy_v2(gone), 0);
        for wrong in [0, gone, gone + 8, stream] {
            assert_eq!(cuEventRecord(wrong, stream), INVALID_HANDLE);
            assert_eq!(cuEventQuery(wrong), INVALID_HANDLE);
            assert_eq!(cuEventSynchronize(wrong), INVALID_HANDLE);
            assert_eq!(cuStreamWaitEvent(stream, wrong, 0), INVALID_HANDLE);
            assert_eq!(cuEventDestroy_v2(wrong), INVALID_HANDLE);
            assert_eq!(elapsed(wrong, made), Err(INVALID_HANDLE));
        }
        assert_eq!(cuEventRecord(made, made), INVALID_HANDLE);
    }
}

#[test]
fn an_event_belongs_to_its_context() {
    library();
    let (event_of_primary, mut context) = (event(0), 0);
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        let own = stream();
        assert_eq!(cuEventRecord(event_of_primary, own), INVALID_HANDLE);
        let event_of_own = event(0);
        assert_eq!(cuEventRecord(event_of_own, own), 0);
        assert_eq!(cuCtxDestroy_v2(context), 0);
        assert_eq!(cuEventQuery(event_of_own), INVALID_HANDLE);
        assert_eq!(cuEventQuery(event_of_primary), 0);
    }
}

#[test]
fn many_events_each_have_a_time_of_their_own() {
    library();
    let stream = stream();
    let events: Vec<usize> = (0..5000).map(|_| event(0)).collect();
    // SAFETY: handles are right.
    unsafe {
        for event in &events {
            assert_eq!(cuEventRecord(*event, stream), 0);
        }
        assert_eq!(cuStreamSynchronize(stream), 0);
        for pair in events.windows(2) {
            assert!(elapsed(pair[0], pair[1]).unwrap() >= 0.0);
        }
        assert!(elapsed(events[0], events[4999]).unwrap() > 0.0);
        for event in events {
            assert_eq!(cuEventDestroy_v2(event), 0);
        }
    }
}
