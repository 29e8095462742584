//! NVML before CUDA, and across `fork`: frameworks count devices by NVML so that processes that
//! they fork can still use CUDA.

#![allow(unsafe_code, reason = "calls a C library")]

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn nvmlInit_v2() -> u32;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut usize) -> u32;
    fn nvmlDeviceGetMemoryInfo(device: usize, info: *mut [u64; 3]) -> u32;
    fn nvmlDeviceGetComputeRunningProcesses_v3(d: usize, n: *mut u32, into: *mut u64) -> u32;
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

const INSUFFICIENT_SIZE: u32 = 7;

/// Returns the results of `cuInit`, and then of two calls of NVML.
fn use_both(device: usize) -> [u32; 3] {
    let (mut count, mut memory) = (0, [0; 3]);
    // SAFETY: the calls write to local variables; the list has no room.
    unsafe {
        [
            cuInit(0),
            nvmlDeviceGetMemoryInfo(device, &mut memory),
            nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, std::ptr::null_mut()),
        ]
    }
}

#[test]
fn a_forked_child_can_use_cuda_after_its_parent_has_used_nvml() {
    let folder = causeway_cuda_tests::serve();
    let (mut device, mut count) = (0, 7);
    // SAFETY: the calls write to local variables.
    let results = unsafe {
        [
            nvmlInit_v2(),
            nvmlDeviceGetHandleByIndex_v2(0, &mut device),
            nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, [0; 24].as_mut_ptr()),
        ]
    };
    assert_eq!(
        (results, count),
        ([0; 3], 0),
        "no process has initialized CUDA"
    );

    let wanted = [0, 0, INSUFFICIENT_SIZE];
    // SAFETY: no other thread of this process is in the library, whose locks are free.
    let child = unsafe { fork() };
    if child == 0 {
        let is_right = use_both(device) == wanted;
        // SAFETY: ends the child without running anything of its parent.
        unsafe { _exit(i32::from(!is_right)) };
    }
    let mut status = -1;
    // SAFETY: the status is written to a local variable.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
    assert_eq!(use_both(device), wanted);
    std::fs::remove_dir_all(folder).unwrap();
}
