//! A fault on one of several devices. It ends that device for this process, so the test is alone.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;
use std::ptr::null;

use causeway_cuda_tests::library_on;
use code::{
    HEAD, cuCtxSetCurrent, cuCtxSynchronize, cuLaunchKernel, cuMemAlloc_v2, cuMemcpyDtoH_v2,
    cuModuleGetFunction, cuModuleLoadData,
};

const ILLEGAL_ADDRESS: u32 = 700;

/// Stores 7 to an address.
const STORE: &str = "
.visible .entry store(.param .u64 at)
{
    .reg .u64 %a<2>;
    .reg .u32 %r<2>;
    ld.param.u64 %a0, [at];
    mov.u32 %r0, 7;
    st.global.u32 [%a0], %r0;
    ret;
}
\0";

unsafe extern "C" {
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> u32;
}

/// Makes the primary context of a device current, and returns it.
fn on(device: i32) -> usize {
    library_on(&["software:0", "software:1"]);
    let mut context = 0;
    // SAFETY: the pointer is valid for the call.
    let retained = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) };
    assert_eq!((retained, cuCtxSetCurrent(context)), (0, 0));
    context
}

fn kernel() -> usize {
    let (mut module, mut function) = (0, 0);
    let code = format!("{HEAD}{STORE}");
    let loaded = cuModuleLoadData(&raw mut module, code.as_ptr().cast());
    assert_eq!(loaded, 0);
    let found = cuModuleGetFunction(&raw mut function, module, c"store".as_ptr());
    assert_eq!(found, 0);
    function
}

fn store(function: usize, address: u64) -> u32 {
    let parameters = [(&raw const address).cast::<c_void>()];
    let pointers = parameters.as_ptr();
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, pointers, null())
}

#[test]
fn a_fault_ends_one_device_alone() {
    let first = on(0);
    let mut kept = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut kept, 128), 0);
    let on_first = kernel();
    let second = on(1);
    assert_eq!(store(kernel(), 64), 0);
    assert_eq!(cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(cuCtxSetCurrent(second), ILLEGAL_ADDRESS);
    assert_eq!(cuCtxSetCurrent(first), 0);
    assert_eq!(store(on_first, kept), 0);
    let mut word = 0_u32;
    assert_eq!(cuMemcpyDtoH_v2((&raw mut word).cast(), kept, 4), 0);
    assert_eq!((word, cuCtxSynchronize()), (7, 0));
}
