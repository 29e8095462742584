//! Copies of pageable memory that are so large that several threads make them.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::c_void;
use std::sync::Once;

unsafe extern "C" {
    safe fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    safe fn cuMemFree_v2(address: u64) -> u32;
    safe fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32;
    safe fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    safe fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
}

/// Starts the library with three threads for a copy, however few processors there are.
fn start() {
    static ASKED: Once = Once::new();
    // SAFETY: every test begins here, and nothing else reads or writes the environment before.
    ASKED.call_once(|| unsafe { std::env::set_var("CAUSEWAY_CUDA_COPY_THREADS", "3") });
    causeway_cuda_tests::library();
}

/// Bytes that tell where they are.
fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let byte = |at| ((at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes).map(byte).collect()
}

/// Copies `bytes` bytes to the device and back, from and to odd addresses.
fn around(bytes: usize, seed: u64) {
    let sent = pattern(bytes + 3, seed);
    let mut back = vec![0_u8; bytes + 100];
    let mut device = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut device, bytes + 5), 0);
    assert_eq!(cuMemsetD8_v2(device, 0xee, bytes + 5), 0);
    let from = sent[3..].as_ptr().cast();
    assert_eq!(cuMemcpyHtoD_v2(device + 5, from, bytes), 0);
    let to = back[37..].as_mut_ptr().cast();
    assert_eq!(cuMemcpyDtoH_v2(to, device + 5, bytes), 0);
    assert!(back[37..37 + bytes] == sent[3..], "{bytes} bytes");
    let beside = back[..37].iter().chain(&back[37 + bytes..]);
    assert!(beside.eq(std::iter::repeat_n(&0, 100)), "{bytes} bytes");
    assert_eq!(cuMemcpyDtoH_v2(to, device, 5), 0);
    assert_eq!(back[37..42], [0xee; 5]);
    assert_eq!(cuMemFree_v2(device), 0);
}

#[test]
fn every_byte_arrives_both_ways() {
    start();
    // Below and above the size from which there are threads, and with a short last piece.
    for bytes in [(8 << 20) - 1, 8 << 20, (8 << 20) + 1, (19 << 20) + 77] {
        around(bytes, bytes as u64);
    }
}

#[test]
fn large_copies_of_several_threads_do_not_mix() {
    start();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || {
                start();
                around((9 << 20) + seed, seed as u64);
            });
        }
    });
}
