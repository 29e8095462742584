//! Managed variables of a library are for one device.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_char;
use std::ptr::null;

use code::*;

unsafe extern "C" {
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> u32;
    fn cuLibraryGetManaged(
        address: *mut u64,
        bytes: *mut usize,
        library: usize,
        name: *const c_char,
    ) -> u32;
}

/// Makes the primary context of a device current.
fn on(device: i32) {
    causeway_cuda_tests::library_on(&["software:0", "software:1"]);
    let mut context = 0;
    // SAFETY: the pointer is valid for the call.
    let retained = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) };
    assert_eq!((retained, cuCtxSetCurrent(context)), (0, 0));
}

#[test]
fn a_second_device_refuses_a_library_with_managed_variables() {
    on(0);
    let body = ".visible .global .attribute(.managed) .align 4 .u32 x = 5;
        .visible .entry k() { ret; }";
    let (text, mut library, mut kernel) = (text(body), 0, 0);
    let (image, no, none) = (text.as_ptr().cast(), null(), nothing());
    let result = cuLibraryLoadData(&raw mut library, image, no, none, 0, null(), null(), 0);
    assert_eq!(result, 0);
    let find = |kernel: &mut usize| cuLibraryGetKernel(kernel, library, c"k".as_ptr());
    let address = || {
        let (mut address, mut bytes) = (0_u64, 0);
        let into = (&raw mut address, &raw mut bytes);
        // SAFETY: the pointers are valid for the call.
        let result = unsafe { cuLibraryGetManaged(into.0, into.1, library, c"x".as_ptr()) };
        (result, address)
    };
    on(0);
    assert_eq!(find(&mut kernel), 0);
    assert_eq!(address().0, 0);
    let first = address();
    on(1);
    assert_eq!(find(&mut kernel), NOT_SUPPORTED);
    assert_eq!(address(), (NOT_SUPPORTED, 0));
    on(0);
    assert_eq!(address(), first);
    // SAFETY: the variable is a word, which no kernel uses.
    assert_eq!(unsafe { (first.1 as *const u32).read() }, 5);
    assert_eq!(cuLibraryUnload(library), 0);
}
