//! Access of one device to a memory pool of another. The last kernel faults, which ends its device
//! for this process, so the test is alone.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;
mod two_devices;

use code::cuMemcpyDtoH_v2;
use two_devices::{ILLEGAL_ADDRESS, kernel, on, store};

const INVALID_VALUE: u32 = 1;
const NOT_SUPPORTED: u32 = 801;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`
const HOST: i32 = 2;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: i32 = 3;
/// More than a chunk of the library's pool.
const LARGE_BYTES: usize = 80 << 20;

unsafe extern "C" {
    fn cuMemPoolCreate(pool: *mut usize, properties: *const [i32; 22]) -> u32;
    fn cuMemPoolDestroy(pool: usize) -> u32;
    fn cuMemPoolSetAccess(pool: usize, list: *const [i32; 3], count: usize) -> u32;
    fn cuMemPoolGetAccess(flags: *mut i32, pool: usize, location: *const [i32; 2]) -> u32;
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: usize, stream: usize) -> u32;
    fn cuMemFreeAsync(address: u64, stream: usize) -> u32;
}

fn word(address: u64) -> u32 {
    let mut word = 0_u32;
    assert_eq!(cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4), 0);
    word
}

/// A pool of device 0, or of its page-locked host memory.
fn pool(kind: i32) -> usize {
    let mut pool = 0;
    let mut properties = [0; 22];
    // Pinned memory, no handle, the place.
    properties[..4].copy_from_slice(&[1, 0, kind, 0]);
    // SAFETY: the pointers are valid for the call.
    let created = unsafe { cuMemPoolCreate(&raw mut pool, &raw const properties) };
    assert_eq!(created, 0);
    pool
}

fn allocate(pool: usize, bytes: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the pointer is valid for the call.
    let allocated = unsafe { cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, 0) };
    assert_eq!(allocated, 0);
    address
}

fn set(pool: usize, device: i32, flags: i32) -> u32 {
    let access = [DEVICE, device, flags];
    // SAFETY: the pointer is valid for the call.
    unsafe { cuMemPoolSetAccess(pool, &raw const access, 1) }
}

fn access(pool: usize, device: i32) -> i32 {
    let mut flags = -1;
    let location = [DEVICE, device];
    // SAFETY: the pointers are valid for the call.
    let told = unsafe { cuMemPoolGetAccess(&raw mut flags, pool, &raw const location) };
    assert_eq!(told, 0);
    flags
}

#[test]
fn another_device_reaches_a_pool_while_it_has_access() {
    on(0);
    let (open, host) = (pool(DEVICE), pool(HOST));
    let before = allocate(open, 64);
    assert_eq!((access(open, 0), access(open, 1)), (READ_WRITE, 0));
    assert_eq!(set(open, 1, 0), 0);
    assert_eq!(set(open, 1, 1), INVALID_VALUE);
    assert_eq!(set(host, 1, READ_WRITE), NOT_SUPPORTED);
    for _ in 0..2 {
        assert_eq!(set(open, 1, READ_WRITE), 0);
        assert_eq!(access(open, 1), READ_WRITE);
    }
    let later = allocate(open, LARGE_BYTES);
    on(1);
    let function = kernel();
    let last = later + LARGE_BYTES as u64 - 4;
    for address in [before, later, last] {
        assert_eq!(store(function, address), 0, "{address:#x}");
    }
    on(0);
    assert_eq!([before, later, last].map(word), [7; 3]);
    // SAFETY: the memory is used by nothing more.
    assert_eq!(unsafe { cuMemFreeAsync(later, 0) }, 0);
    // The address of what was freed may be that of other memory.
    let again = allocate(open, LARGE_BYTES);
    on(1);
    assert_eq!(store(function, again), 0);
    assert_eq!(set(open, 1, 0), 0);
    assert_eq!(access(open, 1), 0);
    assert_eq!(store(function, before), ILLEGAL_ADDRESS);
    on(0);
    assert_eq!(word(again), 7);
    for address in [before, again] {
        // SAFETY: as above.
        assert_eq!(unsafe { cuMemFreeAsync(address, 0) }, 0);
    }
    // SAFETY: the pools are used by nothing more.
    let destroyed = unsafe { [cuMemPoolDestroy(open), cuMemPoolDestroy(host)] };
    assert_eq!(destroyed, [0, 0]);
}
