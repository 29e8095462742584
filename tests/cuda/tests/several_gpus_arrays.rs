//! Arrays of one device, and memory of another.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::c_void;

use cudarc::driver::sys;

unsafe extern "C" {
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> u32;
    fn cuCtxSetCurrent(context: usize) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn cuMemcpyDtoA_v2(to: usize, offset: usize, from: u64, bytes: usize) -> u32;
    fn cuMemcpyAtoD_v2(to: u64, from: usize, offset: usize, bytes: usize) -> u32;
    fn cuMemcpyAtoH_v2(to: *mut u8, from: usize, offset: usize, bytes: usize) -> u32;
    fn cuArrayCreate_v2(array: *mut usize, given: *const sys::CUDA_ARRAY_DESCRIPTOR) -> u32;
    fn cuArrayGetDescriptor_v2(into: *mut sys::CUDA_ARRAY_DESCRIPTOR, array: usize) -> u32;
    fn cuArrayDestroy(array: usize) -> u32;
}

const NOT_SUPPORTED: u32 = 801;

/// Calls a function of the driver API, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: pointers are those of live variables, as large as the call says.
        assert_eq!(unsafe { $call }, 0, "{}", stringify!($call))
    };
}

#[test]
fn memory_of_another_device_is_copied() {
    causeway_cuda_tests::library_on(&["software:0", "software:1"]);
    let mut contexts = [0; 2];
    for (device, context) in (0..).zip(&mut contexts) {
        ok!(cuDevicePrimaryCtxRetain(context, device));
    }
    let all: Vec<u8> = (0..4000_u32).map(|at| (at * 3 + at / 256) as u8).collect();
    let mut memory = 0;
    ok!(cuCtxSetCurrent(contexts[1]));
    ok!(cuMemAlloc_v2(&raw mut memory, 4000));
    ok!(cuMemcpyHtoD_v2(memory, all.as_ptr().cast(), 4000));
    ok!(cuCtxSetCurrent(contexts[0]));
    let mut array = 0;
    let mut given = sys::CUDA_ARRAY_DESCRIPTOR {
        Width: 1000,
        Height: 0,
        Format: sys::CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 1,
    };
    ok!(cuArrayCreate_v2(&raw mut array, &raw const given));
    ok!(cuMemcpyDtoA_v2(array, 0, memory, 4000));
    let mut found = vec![0; 4000];
    ok!(cuMemcpyAtoH_v2(found.as_mut_ptr(), array, 0, 4000));
    assert_eq!(found, all);
    ok!(cuMemcpyAtoD_v2(memory, array, 400, 400));
    ok!(cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), memory, 400));
    assert_eq!(found[..400], all[400..800]);
    // The array is its own device's.
    ok!(cuCtxSetCurrent(contexts[1]));
    ok!(cuArrayGetDescriptor_v2(&raw mut given, array));
    // SAFETY: the memory is there.
    let refused = unsafe { cuMemcpyAtoH_v2(found.as_mut_ptr(), array, 0, 4) };
    assert_eq!(refused, NOT_SUPPORTED);
    ok!(cuArrayDestroy(array));
}
