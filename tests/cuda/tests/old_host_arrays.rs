//! Calls about arrays with a host that has none: they are answered as functions without an
//! implementation are.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use cudarc::driver::sys;

unsafe extern "C" {
    fn cuArrayCreate_v2(array: *mut usize, given: *const sys::CUDA_ARRAY_DESCRIPTOR) -> u32;
    fn cuArrayDestroy(array: usize) -> u32;
    fn cuMemcpyHtoA_v2(to: usize, offset: usize, from: *const u8, bytes: usize) -> u32;
    fn cuTexObjectDestroy(texture: u64) -> u32;
    fn cuDeviceGetTexture1DLinearMaxWidth(n: *mut usize, f: u32, channels: u32, d: i32) -> u32;
}

const NOT_SUPPORTED: u32 = 801;

#[test]
fn there_are_no_arrays() {
    causeway_cuda_tests::library();
    let given = sys::CUDA_ARRAY_DESCRIPTOR {
        Width: 16,
        Height: 16,
        Format: sys::CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 1,
    };
    let (mut array, mut width) = (0, 0);
    // SAFETY: pointers are those of live variables.
    let codes = unsafe {
        [
            cuArrayCreate_v2(&raw mut array, &raw const given),
            cuArrayDestroy(16),
            cuMemcpyHtoA_v2(16, 0, [0_u8; 4].as_ptr(), 4),
            cuTexObjectDestroy(1),
            cuDeviceGetTexture1DLinearMaxWidth(&raw mut width, 1, 1, 0),
        ]
    };
    assert_eq!(codes, [NOT_SUPPORTED; 5]);
}
