//! NVML: the processors and memory nodes near a device, and its fans.

#![allow(unsafe_code, reason = "calls a C library")]

use std::ptr::null_mut;
use std::thread::available_parallelism;

const INVALID_ARGUMENT: u32 = 2;
const NODE: u32 = 0;
const NO_SCOPE: u32 = 2;

unsafe extern "C" {
    fn nvmlInit_v2() -> u32;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut usize) -> u32;
    fn nvmlDeviceGetCpuAffinity(device: usize, words: u32, set: *mut u64) -> u32;
    fn nvmlDeviceGetCpuAffinityWithinScope(d: usize, words: u32, set: *mut u64, scope: u32) -> u32;
    fn nvmlDeviceGetMemoryAffinity(device: usize, words: u32, set: *mut u64, scope: u32) -> u32;
    fn nvmlSystemGetTopologyGpuSet(processor: u32, count: *mut u32, into: *mut usize) -> u32;
    fn nvmlDeviceGetNumFans(device: usize, count: *mut u32) -> u32;
}

/// Calls a function with pointers to live variables of the size that NVML says, and compares its
/// result.
macro_rules! answers {
    ($code:expr, $call:expr) => {
        // SAFETY: the pointers are valid, by the macro's contract; null pointers are refused before
        // they are used.
        assert_eq!(unsafe { $call }, $code, "{}", stringify!($call))
    };
}

fn device() -> usize {
    causeway_cuda_tests::library();
    answers!(0, nvmlInit_v2());
    let mut device = 0;
    answers!(0, nvmlDeviceGetHandleByIndex_v2(0, &mut device));
    device
}

#[test]
fn all_processors_are_near_and_their_device_is_found() {
    let device = device();
    let mut set = [0; 16];
    let room = set.as_mut_ptr();
    answers!(0, nvmlDeviceGetCpuAffinity(device, 16, room));
    let near: u32 = set.iter().map(|word| word.count_ones()).sum();
    // The process may be confined to some of them.
    let usable = available_parallelism().expect("a number").get();
    assert!(near as usize >= usable, "{set:x?}, {usable}");
    let mut in_node = [0; 16];
    let room = in_node.as_mut_ptr();
    answers!(
        0,
        nvmlDeviceGetCpuAffinityWithinScope(device, 16, room, NODE)
    );
    assert_eq!(in_node, set);
    let (mut count, mut found) = (0, [0; 8]);
    let first = set[0].trailing_zeros();
    answers!(
        0,
        nvmlSystemGetTopologyGpuSet(first, &mut count, null_mut())
    );
    assert!(count >= 1);
    let into = found.as_mut_ptr();
    answers!(0, nvmlSystemGetTopologyGpuSet(first, &mut count, into));
    assert_eq!(found[0], device);
    answers!(0, nvmlSystemGetTopologyGpuSet(u32::MAX, &mut count, into));
    assert_eq!(count, 0);
}

#[test]
fn memory_nodes_are_near() {
    let (device, mut set) = (device(), [0; 4]);
    let room = set.as_mut_ptr();
    answers!(0, nvmlDeviceGetMemoryAffinity(device, 4, room, NODE));
    assert!(set[0] & 1 == 1, "{set:x?}");
}

#[test]
fn wrong_sets_are_refused() {
    let (device, mut set) = (device(), [7; 2]);
    let room = set.as_mut_ptr();
    answers!(INVALID_ARGUMENT, nvmlDeviceGetCpuAffinity(device, 0, room));
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetCpuAffinity(device, 2, null_mut())
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlDeviceGetMemoryAffinity(device, 2, room, NO_SCOPE)
    );
    answers!(
        INVALID_ARGUMENT,
        nvmlSystemGetTopologyGpuSet(0, null_mut(), null_mut())
    );
    assert_eq!(set, [7; 2]);
}

#[test]
fn a_device_has_no_fans() {
    let (device, mut count) = (device(), 5);
    answers!(0, nvmlDeviceGetNumFans(device, &mut count));
    assert_eq!(count, 0);
}
