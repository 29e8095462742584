//! Waits of a context that wants them to spin.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ptr::{null, null_mut};
use std::time::Duration;

use causeway_cuda_tests::library;
use code::*;

/// `CU_CTX_SCHED_SPIN`.
const SPIN: u32 = 1;
const ILLEGAL_ADDRESS: u32 = 700;

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
    fn cuCtxSetFlags(flags: u32) -> u32;
    fn cuMemHostAlloc(address: *mut *mut u32, bytes: usize, flags: u32) -> u32;
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
}

/// Waits for work that takes longer than a wait spins before it asks whether the host answers.
fn wait_long() {
    let mut word = null_mut();
    // SAFETY: the pointer is valid for the call; the word is this function's, and stays allocated.
    let word = unsafe {
        assert_eq!(cuMemHostAlloc(&raw mut word, 4, 0), 0);
        word.write_volatile(0);
        assert_eq!(cuStreamWaitValue32_v2(0, word as u64, 1, 0), 0);
        word as usize
    };
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2500));
        // SAFETY: the word stays allocated.
        unsafe { (word as *mut u32).write_volatile(1) };
    });
    assert_eq!(cuCtxSynchronize(), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { (word as *const u32).read_volatile() }, 1);
    writer.join().unwrap();
}

/// One test, because a fault ends the process's use of CUDA.
#[test]
fn a_wait_that_spins_ends_with_the_work_and_with_a_fault() {
    library();
    // SAFETY: the function takes any number.
    assert_eq!(unsafe { cuCtxSetFlags(SPIN) }, 0);
    wait_long();
    let mut address = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut address, 1 << 20), 0);
    let (sent, mut back) = (vec![7_u8; 1 << 20], vec![0_u8; 1 << 20]);
    assert_eq!(
        cuMemcpyHtoD_v2(address, sent.as_ptr().cast(), sent.len()),
        0
    );
    assert_eq!(
        cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, back.len()),
        0
    );
    assert!(back == sent);
    let wild = function(module(WILD), c"wild");
    assert_eq!(
        cuLaunchKernel(wild, 1, 1, 1, 1, 1, 1, 0, 0, null(), null()),
        0
    );
    assert_eq!(cuCtxSynchronize(), ILLEGAL_ADDRESS);
}
