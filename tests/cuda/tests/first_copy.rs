//! The first stream that waits for no other, made behind a copy that is not asynchronous.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_cuda_tests::library;

const BYTES: usize = 4096;
const NOT_READY: u32 = 600;

static GO: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    safe fn cuStreamSynchronize(stream: usize) -> u32;
    safe fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) -> u32;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuLaunchHostFunc(
        stream: usize,
        function: Option<extern "C" fn(usize)>,
        argument: usize,
    ) -> u32;
}

extern "C" fn wait(_argument: usize) {
    while !GO.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

#[test]
fn its_work_begins_behind_the_copy() {
    library();
    let (mut stream, mut from, mut to) = (0, 0, 0);
    let mut bytes = [7; BYTES];
    // SAFETY: pointers are valid for the calls, and memory has so many bytes.
    let codes = unsafe {
        [
            cuMemAlloc_v2(&raw mut from, BYTES),
            cuMemAlloc_v2(&raw mut to, BYTES),
            cuLaunchHostFunc(0, Some(wait), 0),
            cuMemcpyHtoD_v2(from, bytes.as_ptr(), BYTES),
            cuStreamCreate(&raw mut stream, 1),
            cuMemcpyDtoDAsync_v2(to, from, BYTES, stream),
        ]
    };
    assert_eq!(codes, [0; 6]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(cuStreamQuery(stream), NOT_READY);
    GO.store(true, Ordering::Release);
    assert_eq!(cuStreamSynchronize(stream), 0);
    bytes.fill(0);
    // SAFETY: the pointer is valid for the call, and memory has so many bytes.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr(), to, BYTES) }, 0);
    assert_eq!(bytes, [7; BYTES]);
}
