//! Two devices, and a kernel that stores to an address on one of them. Used beside `code`.

use std::ffi::c_void;
use std::ptr::null;

use causeway_cuda_tests::library_on;

use crate::code::{
    HEAD, cuCtxSetCurrent, cuCtxSynchronize, cuLaunchKernel, cuModuleGetFunction, cuModuleLoadData,
};

pub const ILLEGAL_ADDRESS: u32 = 700;

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

/// Makes the primary context of device 0 or 1 current, and returns it.
pub fn on(device: i32) -> usize {
    library_on(&["software:0", "software:1"]);
    let mut context = 0;
    // SAFETY: the pointer is valid for the call.
    let retained = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) };
    assert_eq!((retained, cuCtxSetCurrent(context)), (0, 0));
    context
}

/// Returns the kernel, loaded in the current context.
pub fn kernel() -> usize {
    let (mut module, mut function) = (0, 0);
    let code = format!("{HEAD}{STORE}");
    let loaded = cuModuleLoadData(&raw mut module, code.as_ptr().cast());
    assert_eq!(loaded, 0);
    let found = cuModuleGetFunction(&raw mut function, module, c"store".as_ptr());
    assert_eq!(found, 0);
    function
}

/// Stores 7 to `address` by the kernel, on the current device, and returns how that ended.
pub fn store(function: usize, address: u64) -> u32 {
    let parameters = [(&raw const address).cast::<c_void>()];
    let pointers = parameters.as_ptr();
    let launched = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, pointers, null());
    assert_eq!(launched, 0);
    cuCtxSynchronize()
}
