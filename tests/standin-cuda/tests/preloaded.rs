//! A process that loads the stand-in itself: what asks for `libcuda` afterwards gets it.
#![allow(unsafe_code)] // Calls a C library.

use cudarc::driver::sys;

#[test]
fn who_asks_for_the_driver_gets_the_stand_in() {
    causeway_standin_cuda::preload();
    let mut name = [0; 64];
    // SAFETY: the calls are given what they ask for, in the order in which they may be made.
    let codes = unsafe {
        [
            sys::cuInit(0) as u32,
            sys::cuDeviceGetName(name.as_mut_ptr(), 64, 0) as u32,
        ]
    };
    assert_eq!(codes, [0, 0]);
    let name: String = name
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| char::from(c.cast_unsigned()))
        .collect();
    assert_eq!(name, "Causeway stand-in (no GPU)");
}
