//! A fault on one of several devices. It ends that device for this process, so the test is alone.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;
mod two_devices;

use code::{cuCtxSetCurrent, cuCtxSynchronize, cuMemAlloc_v2, cuMemcpyDtoH_v2};
use two_devices::{ILLEGAL_ADDRESS, kernel, on, store};

#[test]
fn a_fault_ends_one_device_alone() {
    let first = on(0);
    let mut kept = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut kept, 128), 0);
    let on_first = kernel();
    let second = on(1);
    assert_eq!(store(kernel(), 64), ILLEGAL_ADDRESS);
    assert_eq!(cuCtxSetCurrent(second), ILLEGAL_ADDRESS);
    assert_eq!(cuCtxSetCurrent(first), 0);
    assert_eq!(store(on_first, kept), 0);
    let mut word = 0_u32;
    assert_eq!(cuMemcpyDtoH_v2((&raw mut word).cast(), kept, 4), 0);
    assert_eq!((word, cuCtxSynchronize()), (7, 0));
}
