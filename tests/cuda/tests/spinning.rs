//! Waits of a context that wants them to spin.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ptr::null;

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
}

/// One test, because a fault ends the process's use of CUDA.
#[test]
fn a_wait_that_spins_ends_with_the_work_and_with_a_fault() {
    library();
    // SAFETY: the function takes any number.
    assert_eq!(unsafe { cuCtxSetFlags(SPIN) }, 0);
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
