//! Memory pools that two processes share.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod peer;

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_cuda_tests::{library_for_children, library_of_child};
use peer::Peer;

const INVALID_VALUE: u32 = 1;
const NOT_SUPPORTED: u32 = 801;
const BYTES: usize = 4096;
/// What takes the device some milliseconds.
const LARGE_BYTES: usize = 64 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
const DEVICE: Location = Location { kind: 1, id: 0 };
const HOST: Location = Location { kind: 2, id: 0 };
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`, `…_USED_MEM_CURRENT`
const THRESHOLD: u32 = 4;
const USED_BYTES: u32 = 7;
/// `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`
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

/// `CUmemPoolPtrExportData`
type Data = [u8; 64];

unsafe extern "C" {
    fn cuMemPoolCreate(pool: *mut usize, properties: *const Properties) -> u32;
    fn cuMemPoolDestroy(pool: usize) -> u32;
    fn cuMemPoolTrimTo(pool: usize, bytes: usize) -> u32;
    fn cuMemPoolGetAttribute(pool: usize, attribute: u32, value: *mut u64) -> u32;
    fn cuMemPoolSetAttribute(pool: usize, attribute: u32, value: *const u64) -> u32;
    fn cuMemPoolSetAccess(pool: usize, list: *const Access, count: usize) -> u32;
    fn cuMemPoolGetAccess(flags: *mut u32, pool: usize, location: *const Location) -> u32;
    fn cuMemPoolExportToShareableHandle(fd: *mut i32, pool: usize, kind: u32, flags: u64) -> u32;
    fn cuMemPoolImportFromShareableHandle(
        pool: *mut usize,
        fd: usize,
        kind: u32,
        flags: u64,
    ) -> u32;
    fn cuMemPoolExportPointer(data: *mut Data, address: u64) -> u32;
    fn cuMemPoolImportPointer(address: *mut u64, pool: usize, data: *const Data) -> u32;
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: usize, stream: usize) -> u32;
    fn cuMemFreeAsync(address: u64, stream: usize) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) -> u32;
    fn cuMemHostAlloc(address: *mut *mut u32, bytes: usize, flags: u32) -> u32;
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
    fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
    fn cuDeviceSetMemPool(device: i32, pool: usize) -> u32;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) -> u32;
    fn cuPointerGetAttribute(value: *mut u64, attribute: u32, address: u64) -> u32;
    fn cuCtxSetCurrent(context: usize) -> u32;
    fn cuIpcGetMemHandle(handle: *mut Data, address: u64) -> u32;
    fn cuIpcCloseMemHandle(address: u64) -> u32;
}

/// Calls a function of the driver API, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: pointers are those of live variables, as large as the call says.
        assert_eq!(unsafe { $call }, 0, "{}", stringify!($call))
    };
}

/// Calls a function of the driver API, which must refuse its arguments.
macro_rules! refused {
    ($call:expr) => {
        // SAFETY: pointers are those of live variables, as large as the call says.
        assert_eq!(unsafe { $call }, INVALID_VALUE, "{}", stringify!($call))
    };
}

/// Tests look at where memory is: one at a time.
fn begin() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    library_for_children();
    alone
}

fn attribute(number: u32) -> i32 {
    let mut value = 0;
    ok!(cuDeviceGetAttribute(&raw mut value, number, 0));
    value
}

/// Returns the places of the memory that can be shared: the host's only where it has one address
/// for CPU and GPU.
fn places() -> Vec<Location> {
    let mut places = vec![DEVICE];
    places.extend((attribute(144) != 0).then_some(HOST));
    places
}

/// Returns what making a pool answers, and the pool.
fn make_pool(kind: u32, location: Location, handle_types: u32) -> (u32, usize) {
    let given = Properties {
        kind,
        handle_types,
        location,
        rest: [0; 9],
    };
    let mut pool = 0;
    // SAFETY: pointers are valid for the call.
    let answer = unsafe { cuMemPoolCreate(&raw mut pool, &raw const given) };
    (answer, pool)
}

fn shared_pool(location: Location) -> usize {
    let (answer, pool) = make_pool(PINNED, location, POSIX);
    assert_eq!(answer, 0);
    pool
}

fn allocate(pool: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAllocFromPoolAsync(&raw mut address, BYTES, pool, 0));
    address
}

fn fill(address: u64, value: u8) {
    ok!(cuMemsetD8_v2(address, value, BYTES));
    ok!(cuStreamSynchronize(0));
}

/// Returns the value of all bytes at an address, or the error of reading them.
fn read(address: u64) -> Result<u8, u32> {
    let mut bytes = [0; BYTES];
    // SAFETY: there is room for the bytes; the address may be wrong.
    let answer = unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, BYTES) };
    if answer != 0 {
        return Err(answer);
    }
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

fn descriptor(pool: usize) -> OwnedFd {
    let mut number = -1;
    ok!(cuMemPoolExportToShareableHandle(
        &raw mut number,
        pool,
        POSIX,
        0
    ));
    // SAFETY: the call has made it for its caller.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn export(address: u64) -> Data {
    let mut data = [0; 64];
    ok!(cuMemPoolExportPointer(&raw mut data, address));
    data
}

fn import_pool(descriptor: i32) -> usize {
    let (mut pool, number) = (0, descriptor as usize);
    ok!(cuMemPoolImportFromShareableHandle(
        &raw mut pool,
        number,
        POSIX,
        0
    ));
    pool
}

fn import(pool: usize, data: &Data) -> u64 {
    let mut address = 0;
    ok!(cuMemPoolImportPointer(&raw mut address, pool, data));
    address
}

/// Starts `importer` with a pool's descriptor, whose number it gets.
fn start(importer: &str, pool: usize) -> Peer {
    let descriptor = descriptor(pool);
    let mut peer = peer::start(importer, &[descriptor.as_raw_fd()]);
    peer.send(&descriptor.as_raw_fd().to_le_bytes());
    peer
}

/// Does what each importer does first. Returns the exporter, and the imported pool.
fn start_of_importer() -> Option<(Peer, usize)> {
    let mut parent = peer::parent()?;
    library_of_child();
    let pool = import_pool(i32::from_le_bytes(parent.receive()));
    Some((parent, pool))
}

#[test]
fn another_process_reads_and_writes_what_a_pool_shares() {
    let _alone = begin();
    // Of a device with pools; the stand-in driver tells of none.
    assert_eq!(attribute(119), POSIX.cast_signed() * attribute(115));
    for place in places() {
        let pool = shared_pool(place);
        let mut peer = start("importer_of_two", pool);
        let [first, second] = [3, 4].map(|value| {
            let address = allocate(pool);
            fill(address, value);
            peer.send(&export(address));
            address
        });
        assert_eq!(export(first), export(first), "one export");
        if place.kind == HOST.kind {
            // Each begins an export: a process may keep what its CPU has mapped.
            assert_eq!(export(first)[48..56], [0; 8]);
            assert_eq!(export(second)[48..56], [0; 8]);
        }
        // Data of a pool that the other process does not know.
        let stranger = shared_pool(place);
        let strange = allocate(stranger);
        peer.send(&export(strange));
        peer.meet();
        assert_eq!(read(first), Ok(13));
        assert_eq!(read(second), Ok(14));
        for address in [first, second, strange] {
            ok!(cuMemFreeAsync(address, 0));
        }
        peer.finish();
        for pool in [pool, stranger] {
            ok!(cuMemPoolDestroy(pool));
        }
    }
}

#[test]
#[ignore = "the other process"]
fn importer_of_two() {
    let Some((mut parent, pool)) = start_of_importer() else {
        return;
    };
    // Nothing here needs a context but work.
    ok!(cuCtxSetCurrent(0));
    let data: [Data; 3] = [(); 3].map(|()| parent.receive());
    let [first, second] = [0, 1].map(|index| import(pool, &data[index]));
    let (mut base, mut bytes, mut told) = (0, 0, 0);
    ok!(cuPointerGetAttribute(&raw mut told, POOL, first));
    library_of_child();
    ok!(cuMemGetAddressRange_v2(
        &raw mut base,
        &raw mut bytes,
        second + 9
    ));
    assert_eq!((base, bytes), (second, BYTES));
    ok!(cuPointerGetAttribute(&raw mut told, POOL, first));
    assert_eq!(told, pool as u64);
    assert_eq!(read(first), Ok(3));
    assert_eq!(read(second), Ok(4));
    check_refusals(pool, &data);
    fill(first, 13);
    // Work that still uses it ends before the import does.
    ok!(cuMemsetD8Async(second, 14, BYTES, 0));
    ok!(cuMemFreeAsync(second, 0));
    ok!(cuStreamSynchronize(0));
    refused!(cuMemFreeAsync(second, 0));
    refused!(cuIpcCloseMemHandle(first));
    // It is passed on as it was received.
    let mut again = [0; 64];
    ok!(cuMemPoolExportPointer(&raw mut again, first));
    assert_eq!(again, data[0]);
    ok!(cuMemPoolDestroy(pool));
    assert_eq!(read(first), Ok(13));
    ok!(cuMemFree_v2(first));
    refused!(cuMemFree_v2(first));
    parent.meet();
}

/// Checks what cannot be done with an imported pool, and with wrong data: `data` is of two
/// allocations of the pool, and of one of another.
fn check_refusals(pool: usize, data: &[Data; 3]) {
    let (mut address, mut number, mut other, value) = (0, 0, 0, 0);
    let into = &raw mut address;
    refused!(cuMemAllocFromPoolAsync(into, BYTES, pool, 0));
    refused!(cuDeviceSetMemPool(0, pool));
    refused!(cuMemPoolExportToShareableHandle(
        &raw mut number,
        pool,
        POSIX,
        0
    ));
    refused!(cuMemPoolSetAttribute(pool, THRESHOLD, &raw const value));
    refused!(cuMemPoolTrimTo(pool, 0));
    let access = Access {
        location: DEVICE,
        flags: 3,
    };
    let mut flags = 0;
    ok!(cuMemPoolSetAccess(pool, &raw const access, 1));
    ok!(cuMemPoolGetAccess(&raw mut flags, pool, &DEVICE));
    assert_eq!(flags, 3);
    // Data of another pool, or with a number changed: the token, the pool, the place, the size.
    refused!(cuMemPoolImportPointer(into, pool, &raw const data[2]));
    for (at, byte) in [
        (0, data[0][0] ^ 1),
        (32, data[0][32] ^ 1),
        (48, 1),
        (55, 255),
        (59, 1),
    ] {
        let mut forged = data[0];
        forged[at] = byte;
        refused!(cuMemPoolImportPointer(into, pool, &raw const forged));
    }
    let null = std::ptr::null();
    refused!(cuMemPoolImportPointer(into, pool, null));
    refused!(cuMemPoolImportPointer(into, pool + 8, &raw const data[0]));
    let nowhere = std::ptr::null_mut();
    refused!(cuMemPoolImportPointer(nowhere, pool, &raw const data[0]));
    let pools = &raw mut other;
    for (descriptor, kind, flags) in [(0, POSIX, 0), (usize::MAX, POSIX, 0), (0, 8, 0), (0, 1, 1)] {
        refused!(cuMemPoolImportFromShareableHandle(
            pools, descriptor, kind, flags
        ));
    }
}

#[test]
fn freed_memory_is_taken_away_before_it_is_used_again() {
    let _alone = begin();
    let mut large = 0;
    ok!(cuMemAlloc_v2(&raw mut large, LARGE_BYTES));
    for place in places() {
        let pool = shared_pool(place);
        let mut peer = start("importer_of_freed", pool);
        let address = allocate(pool);
        fill(address, 5);
        peer.send(&export(address));
        peer.meet();
        // It waits for work that is under way.
        ok!(cuMemsetD8Async(large, 1, LARGE_BYTES, 0));
        ok!(cuMemFree_v2(address));
        let again = allocate(pool);
        assert_eq!(again, address, "the same place");
        fill(again, 9);
        peer.meet();
        peer.finish();
        ok!(cuMemFree_v2(again));
        ok!(cuMemPoolDestroy(pool));
    }
    ok!(cuMemFree_v2(large));
}

#[test]
#[ignore = "the other process"]
fn importer_of_freed() {
    let Some((mut parent, pool)) = start_of_importer() else {
        return;
    };
    let data = parent.receive();
    let address = import(pool, &data);
    assert_eq!(read(address), Ok(5));
    parent.meet();
    parent.meet();
    let mut late = 0;
    refused!(cuMemPoolImportPointer(&raw mut late, pool, &raw const data));
    assert_ne!(read(address), Ok(9));
}

/// A word for which work waits.
struct Gate(*mut u32);

impl Gate {
    fn set(&self, value: u32) {
        // SAFETY: the word stays allocated.
        unsafe { self.0.write_volatile(value) };
    }
}

impl Drop for Gate {
    /// After a failure, the other tests go on.
    fn drop(&mut self) {
        self.set(1);
    }
}

#[test]
fn memory_that_is_freed_behind_work_stays_until_the_work_has_ended() {
    let _alone = begin();
    let mut word = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&raw mut word, 4, 0));
    let gate = Gate(word);
    for place in places() {
        let pool = shared_pool(place);
        let mut peer = start("importer_behind_work", pool);
        let address = allocate(pool);
        fill(address, 5);
        peer.send(&export(address));
        peer.meet();
        gate.set(0);
        ok!(cuStreamWaitValue32_v2(0, word as u64, 1, 0));
        ok!(cuMemFreeAsync(address, 0));
        let next = allocate(pool);
        assert_ne!(next, address, "the other process still has it");
        peer.meet();
        // It has read it.
        peer.meet();
        gate.set(1);
        ok!(cuStreamSynchronize(0));
        ok!(cuMemFree_v2(next));
        peer.meet();
        peer.finish();
        ok!(cuMemPoolDestroy(pool));
    }
}

#[test]
#[ignore = "the other process"]
fn importer_behind_work() {
    let Some((mut parent, pool)) = start_of_importer() else {
        return;
    };
    let data = parent.receive();
    let address = import(pool, &data);
    parent.meet();
    parent.meet();
    assert_eq!(read(address), Ok(5));
    let again = import(pool, &data);
    assert_eq!(read(again), Ok(5));
    parent.meet();
    parent.meet();
    let mut late = 0;
    refused!(cuMemPoolImportPointer(&raw mut late, pool, &raw const data));
    assert_ne!(read(address), Ok(5));
}

#[test]
fn a_shared_pool_has_memory_of_its_own() {
    let _alone = begin();
    let pool = shared_pool(DEVICE);
    let private = || {
        let mut address = 0;
        ok!(cuMemAlloc_v2(&raw mut address, 512));
        address
    };
    // The first takes what is left of earlier tests.
    let before: Vec<u64> = (0..64).map(|_| private()).collect();
    let shared = allocate(pool);
    let behind = private();
    let last = before[63];
    assert_eq!(behind, last + 512, "nothing lies between");
    assert!(shared.abs_diff(last) > 512);
    let mut handle = [0; 64];
    refused!(cuIpcGetMemHandle(&raw mut handle, shared));
    for address in before.into_iter().chain([behind]) {
        ok!(cuMemFree_v2(address));
    }
    // A pool may go before its memory.
    ok!(cuMemPoolDestroy(pool));
    let mut data = [0; 64];
    refused!(cuMemPoolExportPointer(&raw mut data, shared));
    ok!(cuMemFree_v2(shared));
    let (next, mut used) = (shared_pool(DEVICE), u64::MAX);
    ok!(cuMemPoolGetAttribute(next, USED_BYTES, &raw mut used));
    assert_eq!(used, 0);
    let address = allocate(next);
    fill(address, 1);
    assert_eq!(read(address), Ok(1));
    ok!(cuMemFreeAsync(address, 0));
    ok!(cuMemPoolDestroy(next));
}

#[test]
fn only_pools_made_for_it_are_shared() {
    let _alone = begin();
    assert_eq!(make_pool(MANAGED, DEVICE, POSIX).0, NOT_SUPPORTED);
    assert_eq!(make_pool(PINNED, DEVICE, 8).0, NOT_SUPPORTED);
    assert_eq!(make_pool(PINNED, DEVICE, 2).0, INVALID_VALUE);
    let (answer, private) = make_pool(PINNED, DEVICE, 0);
    assert_eq!(answer, 0);
    let pool = shared_pool(DEVICE);
    let address = allocate(private);
    let (mut number, mut data) = (0, [0; 64]);
    let export = &raw mut number;
    refused!(cuMemPoolExportToShareableHandle(export, private, POSIX, 0));
    refused!(cuMemPoolExportToShareableHandle(export, pool, 0, 0));
    refused!(cuMemPoolExportToShareableHandle(export, pool, POSIX, 1));
    refused!(cuMemPoolExportToShareableHandle(export, pool + 8, POSIX, 0));
    let nowhere = std::ptr::null_mut();
    refused!(cuMemPoolExportToShareableHandle(nowhere, pool, POSIX, 0));
    refused!(cuMemPoolExportPointer(&raw mut data, address));
    refused!(cuMemPoolExportPointer(&raw mut data, 0));
    let shared = allocate(pool);
    refused!(cuMemPoolExportPointer(&raw mut data, shared + 256));
    let nowhere = std::ptr::null_mut();
    refused!(cuMemPoolExportPointer(nowhere, shared));
    ok!(cuMemPoolExportPointer(&raw mut data, shared));
    let mut opened = 0;
    // The pool itself imports nothing.
    refused!(cuMemPoolImportPointer(
        &raw mut opened,
        pool,
        &raw const data
    ));
    for address in [address, shared] {
        ok!(cuMemFree_v2(address));
    }
    for pool in [pool, private] {
        ok!(cuMemPoolDestroy(pool));
    }
}
