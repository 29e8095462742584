//! The first stream that waits for no other, while the default stream has work.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_cuda_tests::library;

static GO: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    safe fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemsetD32Async(to: u64, value: u32, words: usize, stream: usize) -> u32;
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
fn its_work_begins_while_the_default_stream_is_held() {
    library();
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        eprintln!("the first ring waits for ever");
        std::process::exit(1);
    });
    let (mut stream, mut memory) = (0, 0);
    // SAFETY: pointers are valid for the calls, and memory has so many words.
    let codes = unsafe {
        [
            cuMemAlloc_v2(&raw mut memory, 4096),
            cuLaunchHostFunc(0, Some(wait), 0),
            cuStreamCreate(&raw mut stream, 1),
            cuMemsetD32Async(memory, 1, 1024, stream),
        ]
    };
    assert_eq!(codes, [0; 4]);
    assert_eq!(cuStreamSynchronize(stream), 0);
    GO.store(true, Ordering::Release);
    assert_eq!(cuStreamSynchronize(0), 0);
}
