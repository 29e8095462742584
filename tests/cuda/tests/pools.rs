//! Memory pools of the host and of managed memory.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use causeway_cuda_tests::alone;

const INVALID_VALUE: u32 = 1;
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
const DEVICE: Location = Location { kind: 1, id: 0 };
const HOST: Location = Location { kind: 2, id: 0 };
const USED_BYTES: u32 = 7;
const IS_MANAGED: u32 = 8;
const POOL: u32 = 17;

/// `CUmemLocation`
#[derive(Clone, Copy)]
#[repr(C)]
struct Location {
    kind: i32,
    id: i32,
}

/// `CUmemPoolProps`
#[repr(C)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: Location,
    rest: [u64; 9],
}

/// `CUmemAccessDesc`
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

unsafe extern "C" {
    fn cuMemGetDefaultMemPool(pool: *mut usize, location: *const Location, kind: u32) -> u32;
    fn cuMemGetMemPool(pool: *mut usize, location: *const Location, kind: u32) -> u32;
    fn cuMemSetMemPool(location: *const Location, kind: u32, pool: usize) -> u32;
    fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: i32) -> u32;
    fn cuMemPoolCreate(pool: *mut usize, properties: *const Properties) -> u32;
    fn cuMemPoolDestroy(pool: usize) -> u32;
    fn cuMemPoolGetAttribute(pool: usize, attribute: u32, value: *mut u64) -> u32;
    fn cuMemPoolSetAccess(pool: usize, list: *const Access, count: usize) -> u32;
    fn cuMemPoolGetAccess(flags: *mut u32, pool: usize, location: *const Location) -> u32;
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: usize, stream: usize) -> u32;
    fn cuMemFreeAsync(address: u64, stream: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemFreeHost(address: u64) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> u32;
    fn cuMemRangeGetAttribute(
        value: *mut i32,
        room: usize,
        attribute: u32,
        address: u64,
        bytes: usize,
    ) -> u32;
    fn cuMemPrefetchBatchAsync(
        addresses: *const u64,
        bytes: *const usize,
        count: usize,
        locations: *const Location,
        firsts: *const usize,
        places: usize,
        flags: u64,
        stream: usize,
    ) -> u32;
    fn cuMemDiscardBatchAsync(
        addresses: *const u64,
        bytes: *const usize,
        count: usize,
        flags: u64,
        stream: usize,
    ) -> u32;
    fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuPointerGetAttribute(value: *mut u64, attribute: u32, address: u64) -> u32;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) -> u32;
}

fn pool(location: Location, kind: u32) -> usize {
    let mut pool = 0;
    // SAFETY: the pointers are valid for the call.
    let found = unsafe { cuMemGetMemPool(&raw mut pool, &raw const location, kind) };
    assert_eq!(found, 0);
    pool
}

fn used(pool: usize) -> u64 {
    let mut bytes = 0;
    // SAFETY: the pointer is valid for the call.
    let told = unsafe { cuMemPoolGetAttribute(pool, USED_BYTES, &raw mut bytes) };
    assert_eq!(told, 0);
    bytes
}

/// Returns whether host and device share addresses.
fn has_managed_memory() -> bool {
    let mut value = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuDeviceGetAttribute(&raw mut value, 83, 0) }, 0);
    let mut pools = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuDeviceGetAttribute(&raw mut pools, 144, 0) }, 0);
    assert_eq!(
        value, pools,
        "pools of the host are there with managed memory"
    );
    value != 0
}

#[test]
fn each_kind_of_memory_has_pools_of_its_own() {
    let _alone = alone();
    let (device, host) = (pool(DEVICE, PINNED), pool(HOST, PINNED));
    let managed = pool(HOST, MANAGED);
    assert!(device != host && host != managed && device != managed);
    let given = Properties {
        kind: PINNED,
        handle_types: 0,
        location: HOST,
        rest: [0; 9],
    };
    let (mut own, mut found) = (0, 0);
    // SAFETY: pointers are valid for the calls, handles may be wrong.
    unsafe {
        assert_eq!(cuDeviceGetDefaultMemPool(&raw mut found, 0), 0);
        assert_eq!(found, device);
        assert_eq!(cuMemPoolCreate(&raw mut own, &raw const given), 0);
        assert_eq!(cuMemSetMemPool(&DEVICE, PINNED, own), INVALID_VALUE);
        assert_eq!(cuMemSetMemPool(&HOST, PINNED, own), 0);
        assert_eq!(pool(HOST, PINNED), own);
        assert_eq!(cuMemGetDefaultMemPool(&raw mut found, &HOST, PINNED), 0);
        assert_eq!(found, host);
        assert_eq!(cuMemPoolDestroy(host), INVALID_VALUE, "a default pool");
        assert_eq!(cuMemPoolDestroy(own), 0);
        assert_eq!(pool(HOST, PINNED), host);
        let nowhere = Location { kind: 9, id: 0 };
        let wrong = cuMemGetMemPool(&raw mut found, &raw const nowhere, PINNED);
        assert_eq!(wrong, INVALID_VALUE);
        let kind = cuMemGetMemPool(&raw mut found, &DEVICE, 3);
        assert_eq!(kind, INVALID_VALUE);
    }
}

#[test]
fn memory_of_the_host_is_seen_by_both_and_counted() {
    let _alone = alone();
    if !has_managed_memory() {
        return;
    }
    for (location, kind) in [(HOST, PINNED), (HOST, MANAGED), (DEVICE, MANAGED)] {
        let (pool, mut address, mut value) = (pool(location, kind), 0, 0);
        let before = used(pool);
        // SAFETY: pointers are valid for the calls; the memory is the process's.
        unsafe {
            let allocated = cuMemAllocFromPoolAsync(&raw mut address, 4096, pool, 0);
            assert_eq!(allocated, 0);
            assert!(used(pool) >= before + 4096);
            assert_eq!(cuMemsetD8Async(address, 0x5a, 4096, 0), 0);
            assert_eq!(cuStreamSynchronize(0), 0);
            let bytes = std::slice::from_raw_parts(address as *const u8, 4096);
            assert!(bytes.iter().all(|byte| *byte == 0x5a));
            assert_eq!(cuPointerGetAttribute(&raw mut value, POOL, address), 0);
            assert_eq!(value, pool as u64);
            value = 0;
            assert_eq!(
                cuPointerGetAttribute(&raw mut value, IS_MANAGED, address),
                0
            );
            assert_eq!(value, u64::from(kind == MANAGED));
            assert_eq!(
                cuMemFreeHost(address),
                INVALID_VALUE,
                "not of cuMemHostAlloc"
            );
            assert_eq!(cuMemFreeAsync(address, 0), 0);
            assert_eq!(cuMemFree_v2(address), INVALID_VALUE);
            assert_eq!(used(pool), before);
            // Memory that work still uses is not given again before the work is done.
            for round in 0..64 {
                assert_eq!(cuMemAllocFromPoolAsync(&raw mut address, 4096, pool, 0), 0);
                assert_eq!(cuMemsetD8Async(address, round, 4096, 0), 0);
                assert_eq!(cuMemFreeAsync(address, 0), 0);
            }
            assert_eq!(cuStreamSynchronize(0), 0);
        }
    }
}

#[test]
fn the_device_may_be_kept_from_memory_of_the_host_only() {
    let _alone = alone();
    let (host, managed) = (pool(HOST, PINNED), pool(DEVICE, MANAGED));
    let access = |flags| Access {
        location: DEVICE,
        flags,
    };
    let mut flags = 0;
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuMemPoolSetAccess(host, &access(0), 1), 0);
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, host, &DEVICE), 0);
        assert_eq!(flags, 0);
        assert_eq!(cuMemPoolSetAccess(host, &access(3), 1), 0);
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, host, &DEVICE), 0);
        assert_eq!(flags, 3);
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, host, &HOST), 0);
        assert_eq!(flags, 3);
        assert_eq!(cuMemPoolSetAccess(managed, &access(0), 1), 101);
        assert_eq!(cuMemPoolSetAccess(managed, &access(2), 1), INVALID_VALUE);
    }
}

/// Returns where managed memory was prefetched to: a device, -1 for the CPU, -2 for nowhere.
fn prefetched(address: u64) -> i32 {
    let mut number = 0;
    // SAFETY: the pointer is valid for the call.
    let told = unsafe { cuMemRangeGetAttribute(&raw mut number, 4, 4, address, 4096) };
    assert_eq!(told, 0);
    number
}

#[test]
fn ranges_are_prefetched_each_to_its_place() {
    let _alone = alone();
    if !has_managed_memory() {
        return;
    }
    let (mut stream, mut addresses) = (0, [0; 3]);
    let bytes = [4096; 3];
    // SAFETY: pointers are valid for the calls, with as many elements as are told.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        for address in &mut addresses {
            assert_eq!(cuMemAllocManaged(address, 4096, 1), 0);
        }
        let batch = |firsts: [usize; 2], flags, stream| {
            let (places, firsts) = ([HOST, DEVICE], firsts);
            let lists = (addresses.as_ptr(), bytes.as_ptr(), places.as_ptr());
            let firsts = firsts.as_ptr();
            cuMemPrefetchBatchAsync(lists.0, lists.1, 3, lists.2, firsts, 2, flags, stream)
        };
        for wrong in [[1, 2], [0, 0], [0, 3]] {
            assert_eq!(batch(wrong, 0, stream), INVALID_VALUE, "{wrong:?}");
        }
        assert_eq!(batch([0, 2], 1, stream), INVALID_VALUE, "flags");
        assert_eq!(batch([0, 2], 0, 0), INVALID_VALUE, "the default stream");
        assert_eq!(addresses.map(prefetched), [-2; 3]);
        assert_eq!(batch([0, 2], 0, stream), 0);
        assert_eq!(addresses.map(prefetched), [-1, -1, 0]);
        let discard =
            |count| cuMemDiscardBatchAsync(addresses.as_ptr(), bytes.as_ptr(), count, 0, stream);
        assert_eq!(discard(3), 0);
        assert_eq!(discard(0), INVALID_VALUE);
        for address in addresses {
            assert_eq!(cuMemFree_v2(address), 0);
        }
        // What was freed may be another test's by now.
        let other = [(&raw const bytes).addr() as u64];
        let refused = cuMemDiscardBatchAsync(other.as_ptr(), bytes.as_ptr(), 1, 0, stream);
        assert_eq!(refused, INVALID_VALUE, "it is no managed memory");
    }
}
