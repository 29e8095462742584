//! `CUDA_VISIBLE_DEVICES` with several devices. It is read once, so the test is alone.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use causeway_cuda_tests::library_on;

unsafe extern "C" {
    fn cuDeviceGetCount(count: *mut i32) -> u32;
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuPointerGetAttribute(data: *mut i32, attribute: u32, address: u64) -> u32;
    fn nvmlInit_v2() -> u32;
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> u32;
}

#[test]
fn a_program_sees_the_devices_that_are_named_in_their_order() {
    // SAFETY: nothing else of this process reads or writes the environment meanwhile.
    unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "2,0,7,1") };
    library_on(&["software:0", "software:1", "software:2"]);
    let (mut count, mut monitored, mut address, mut device) = (0, 0, 0, -1);
    let mut uuids = [[0; 16]; 2];
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuDeviceGetCount(&raw mut count), 0);
        assert_eq!(count, 2);
        assert_eq!(cuDeviceGetUuid(&raw mut uuids[0], 0), 0);
        assert_eq!(cuDeviceGetUuid(&raw mut uuids[1], 1), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 64), 0);
        assert_eq!(cuPointerGetAttribute(&raw mut device, 9, address), 0);
        assert_eq!(nvmlInit_v2(), 0);
        assert_eq!(nvmlDeviceGetCount_v2(&raw mut monitored), 0);
    }
    // The last byte of UUIDs on the software engine counts the devices.
    assert_eq!(uuids[0][15], uuids[1][15] + 2);
    assert_eq!((device, monitored), (0, 3));
}
