//! A ring that is full, and that waits for another one in which a fault happens.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_cuda_tests::library;
use code::*;

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`
const NO_TIME: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;
/// Many times as many fills as a ring holds.
const FILLS: u64 = 1 << 20;

/// Stores to the device's address 0.
const WILD: &str = "
.visible .entry wild()
{
    .reg .b64 %d<2>;
    mov.u64 %d1, 0;
    st.global.u64 [%d1], %d1;
    ret;
}
";

unsafe extern "C" {
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuMemHostAlloc(address: *mut *mut u32, bytes: usize, flags: u32) -> u32;
    fn cuMemsetD32Async(to: u64, value: u32, words: usize, stream: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
}

static FILLED: AtomicU64 = AtomicU64::new(0);

/// Sets the word when the program fills no more, because the ring is full. Ends the process if the
/// program learns nothing of the fault that follows.
fn fault_when_full(word: usize) {
    let mut before = u64::MAX;
    while before != FILLED.load(Ordering::Relaxed) {
        before = FILLED.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(1));
    }
    // SAFETY: the word stays allocated until the process ends.
    unsafe { (word as *mut u32).write_volatile(1) };
    std::thread::sleep(Duration::from_secs(30));
    eprintln!("a full ring waits for ever for one that a fault has stopped");
    std::process::exit(1);
}

/// One test, because a fault ends the process's use of CUDA.
#[test]
fn a_full_ring_that_waits_for_a_fault_tells_the_program() {
    library();
    let wild = function(module(WILD), c"wild");
    let (mut faulting, mut waiting, mut event) = (0, 0, 0);
    let (mut place, mut word) = (0, null_mut());
    assert_eq!(cuMemAlloc_v2(&raw mut place, 4), 0);
    // SAFETY: the pointers are valid for the calls; the word stays allocated.
    let codes = unsafe {
        [
            cuMemHostAlloc(&raw mut word, 4, 0),
            cuStreamCreate(&raw mut faulting, NON_BLOCKING),
            cuStreamCreate(&raw mut waiting, NON_BLOCKING),
            cuEventCreate(&raw mut event, NO_TIME),
            cuStreamWaitValue32_v2(faulting, word as u64, 1, 0),
            cuLaunchKernel(wild, 1, 1, 1, 1, 1, 1, 0, faulting, null(), null()),
            cuEventRecord(event, faulting),
            cuStreamWaitEvent(waiting, event, 0),
        ]
    };
    assert_eq!(codes, [0; 8]);
    let word = word as usize;
    std::thread::spawn(move || fault_when_full(word));
    let mut fills = (0..FILLS).map(|_| {
        FILLED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: takes any numbers.
        unsafe { cuMemsetD32Async(place, 1, 1, waiting) }
    });
    assert_eq!(fills.find(|code| *code != 0), Some(ILLEGAL_ADDRESS));
    assert!(FILLED.load(Ordering::Relaxed) < FILLS);
}
