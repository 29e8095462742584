//! Devices: what programs ask before anything else.

#![allow(unsafe_code, reason = "calls a C library")]

use std::ffi::CStr;
use std::ptr::null_mut;

use causeway_cuda_tests::{is_on_gpu, is_on_software, library};

unsafe extern "C" {
    fn cuDriverGetVersion(version: *mut i32) -> u32;
    fn cuDeviceGetCount(count: *mut i32) -> u32;
    fn cuDeviceGetName(name: *mut i8, room: i32, device: i32) -> u32;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) -> u32;
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) -> u32;
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> u32;
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> u32;
    fn cuDeviceGetPCIBusId(text: *mut i8, room: i32, device: i32) -> u32;
    fn cuDeviceGetByPCIBusId(device: *mut i32, text: *const i8) -> u32;
    fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> u32;
    fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: u32, one: i32, other: i32) -> u32;
    fn cuCtxEnablePeerAccess(peer: usize, flags: u32) -> u32;
}

fn attribute(number: u32) -> Result<i32, u32> {
    let mut value = 0;
    // SAFETY: stores an integer.
    match unsafe { cuDeviceGetAttribute(&mut value, number, 0) } {
        0 => Ok(value),
        code => Err(code),
    }
}

#[test]
fn the_device_is_described() {
    library();
    let (mut version, mut count, mut bytes) = (0, 0, 0);
    let (mut major, mut minor) = (0, 0);
    let mut uuid = [0; 16];
    let mut name = [0_i8; 64];
    // SAFETY: each stores what its type says, the name at most 64 bytes.
    unsafe {
        assert_eq!(cuDriverGetVersion(&mut version), 0);
        assert_eq!(cuDeviceGetCount(&mut count), 0);
        assert_eq!(cuDeviceTotalMem_v2(&mut bytes, 0), 0);
        assert_eq!(cuDeviceComputeCapability(&mut major, &mut minor, 0), 0);
        assert_eq!(cuDeviceGetUuid_v2(&mut uuid, 0), 0);
        assert_eq!(cuDeviceGetName(name.as_mut_ptr(), 64, 0), 0);
    }
    assert_eq!(count, 1);
    assert!(version >= 12_040 && major >= 7, "{version} {major}");
    assert!(bytes >= 1 << 20 && uuid != [0; 16]);
    // SAFETY: the name ends in NUL.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let name = name.to_string_lossy();
    if is_on_software() {
        assert_eq!((version, major, minor), (13_000, 9, 0));
        assert!(name.contains("software"), "{name}");
    }
    assert!(!name.is_empty());
    let values = [1, 5, 10, 75, 76, 88].map(attribute);
    let wanted = [1024, i32::MAX, 32, major, minor, 0];
    assert_eq!(values, wanted.map(Ok));
    // The stand-in driver has no cooperative launches.
    let is_cooperative = is_on_software() || is_on_gpu();
    assert_eq!(attribute(95), Ok(i32::from(is_cooperative)));
    assert_eq!([0, 149, 161, u32::MAX].map(attribute), [Err(1); 4]);
}

#[test]
fn the_device_is_found_by_its_pci_address() {
    library();
    let mut text = [0_i8; 16];
    let mut device = 7;
    // SAFETY: a text of at most 16 bytes is stored, and read again.
    unsafe {
        assert_eq!(cuDeviceGetPCIBusId(text.as_mut_ptr(), 16, 0), 0);
        assert_eq!(cuDeviceGetByPCIBusId(&mut device, text.as_ptr()), 0);
        assert_eq!(device, 0);
        let other = c"0000:7f:1f.0".as_ptr().cast();
        assert_eq!(cuDeviceGetByPCIBusId(&mut device, other), 101);
        assert_eq!(
            cuDeviceGetByPCIBusId(&mut device, c"nonsense".as_ptr().cast()),
            1
        );
    }
}

#[test]
fn wrong_calls_get_their_codes() {
    library();
    let mut value = 0;
    // SAFETY: null pointers and devices that do not exist are refused.
    unsafe {
        assert_eq!(cuDeviceGetAttribute(null_mut(), 1, 0), 1);
        assert_eq!(cuDeviceGetAttribute(&mut value, 1, 1), 101);
        assert_eq!(cuDeviceGetName(null_mut(), 64, 0), 1);
        assert_eq!(cuDeviceGetName((&raw mut value).cast(), -1, 0), 1);
        assert_eq!(cuDeviceCanAccessPeer(&mut value, 0, 0), 0);
        assert_eq!(value, 0);
        assert_eq!(cuDeviceCanAccessPeer(&mut value, 0, 1), 101);
        assert_eq!(cuDeviceGetP2PAttribute(&mut value, 1, 0, 0), 101);
        assert_eq!(cuDeviceGetP2PAttribute(&mut value, 99, 0, 0), 101);
        assert_eq!(cuCtxEnablePeerAccess(0x1234, 0), 201);
    }
}
