//! Page-locked, managed and registered host memory, and virtual memory.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use cudarc::driver::sys;

unsafe extern "C" {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemHostAlloc(address: *mut u64, bytes: usize, flags: u32) -> u32;
    fn cuMemFreeHost(address: u64) -> u32;
    fn cuMemHostGetDevicePointer_v2(pointer: *mut u64, address: u64, flags: u32) -> u32;
    fn cuMemHostGetFlags(flags: *mut u32, address: u64) -> u32;
    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) -> u32;
    fn cuMemHostUnregister(address: u64) -> u32;
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> u32;
    fn cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32) -> u32;
    fn cuMemRangeGetAttribute(data: *mut i32, size: usize, a: u32, at: u64, bytes: usize) -> u32;
    fn cuMemcpy(to: u64, from: u64, bytes: usize) -> u32;
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> u32;
    fn cuPointerGetAttribute(data: *mut u64, attribute: u32, address: u64) -> u32;
    fn cuMemCreate(h: *mut u64, b: usize, p: *const sys::CUmemAllocationProp, f: u64) -> u32;
    fn cuMemRelease(handle: u64) -> u32;
    fn cuMemAddressReserve(p: *mut u64, bytes: usize, align: usize, hint: u64, f: u64) -> u32;
    fn cuMemAddressFree(address: u64, bytes: usize) -> u32;
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> u32;
    fn cuMemUnmap(address: u64, bytes: usize) -> u32;
    fn cuMemSetAccess(a: u64, bytes: usize, d: *const sys::CUmemAccessDesc, n: usize) -> u32;
    fn cuMemExportToShareableHandle(fd: *mut i32, handle: u64, kind: u32, flags: u64) -> u32;
    fn cuMemImportFromShareableHandle(handle: *mut u64, fd: usize, kind: u32) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
}

const NOT_SUPPORTED: u32 = 801;
const INVALID_VALUE: u32 = 1;
const GRANULARITY: usize = 2 << 20;

/// Calls a function of the driver API, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: pointers are those of live variables, as large as the call says.
        assert_eq!(unsafe { $call }, 0, "{}", stringify!($call))
    };
}

/// Calls a function of the driver API, which must fail with this code.
macro_rules! refused {
    ($call:expr, $code:expr) => {
        // SAFETY: as for `ok`; other pointers are refused before they are used.
        assert_eq!(unsafe { $call }, $code, "{}", stringify!($call))
    };
}

fn device(bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, bytes));
    address
}

fn pinned(bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemHostAlloc(&raw mut address, bytes, 2));
    address
}

fn bytes_at<'a>(address: u64, bytes: usize) -> &'a mut [u8] {
    // SAFETY: host memory that the library has allocated, which no work uses while the slice lives.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
}

#[test]
fn page_locked_memory_has_one_address_and_both_sides_see_it() {
    let _alone = causeway_cuda_tests::alone();
    let (host, gpu) = (pinned(5000), device(5000));
    let mut pointer = 0;
    ok!(cuMemHostGetDevicePointer_v2(&raw mut pointer, host + 7, 0));
    assert_eq!(pointer, host + 7);
    let mut flags = 0;
    ok!(cuMemHostGetFlags(&raw mut flags, host));
    assert_eq!(flags, 2);
    bytes_at(host, 5000)
        .iter_mut()
        .zip(0..)
        .for_each(|(byte, index): (_, u32)| {
            *byte = index as u8;
        });
    ok!(cuMemcpyAsync(gpu + 1, host + 3, 4001, 0));
    ok!(cuMemcpyAsync(host, gpu + 1, 4001, 0));
    ok!(cuStreamSynchronize(0));
    for (index, byte) in bytes_at(host, 4001).iter().enumerate() {
        assert_eq!(*byte, (index + 3) as u8, "byte {index}");
    }
    // A synchronous fill of host memory is seen at once.
    ok!(cuMemsetD8_v2(host, 0x5a, 5000));
    assert!(bytes_at(host, 5000).iter().all(|byte| *byte == 0x5a));
    let mut kind = 0;
    ok!(cuPointerGetAttribute(&raw mut kind, 2, host));
    assert_eq!(kind, 1, "memory of the host");
    refused!(cuMemFreeHost(host + 1), INVALID_VALUE);
    refused!(cuMemFree_v2(host), INVALID_VALUE);
    refused!(cuMemFreeHost(gpu), INVALID_VALUE);
    ok!(cuMemFreeHost(host));
    refused!(cuMemFreeHost(host), INVALID_VALUE);
    refused!(cuMemcpy(gpu, host, 1), INVALID_VALUE);
    ok!(cuMemFree_v2(gpu));
}

#[test]
fn pieces_of_page_locked_memory_are_apart_and_used_again() {
    let _alone = causeway_cuda_tests::alone();
    let sizes = [1, 512, 513, 4096, (1 << 20) + 1, 5 << 20];
    let pieces = sizes.map(pinned);
    for (index, (piece, bytes)) in pieces.iter().zip(sizes).enumerate() {
        assert_eq!(piece % 512, 0);
        bytes_at(*piece, bytes).fill(index as u8);
    }
    for (index, (piece, bytes)) in pieces.iter().zip(sizes).enumerate() {
        let found = bytes_at(*piece, bytes);
        assert!(
            found.iter().all(|byte| *byte == index as u8),
            "piece {index}"
        );
        ok!(cuMemFreeHost(*piece));
    }
}

#[test]
fn managed_memory_is_read_and_written_by_both() {
    let _alone = causeway_cuda_tests::alone();
    let mut address = 0;
    refused!(cuMemAllocManaged(&raw mut address, 64, 0), INVALID_VALUE);
    ok!(cuMemAllocManaged(&raw mut address, 10_000, 1));
    bytes_at(address, 10_000).fill(3);
    ok!(cuMemsetD32_v2(address + 4000, 0x0707_0707, 1000));
    ok!(cuStreamSynchronize(0));
    let found = bytes_at(address, 10_000);
    assert!(found[..4000].iter().all(|byte| *byte == 3));
    assert!(found[4000..8000].iter().all(|byte| *byte == 7));
    assert!(found[8000..].iter().all(|byte| *byte == 3));
    ok!(cuMemAdvise(address, 10_000, 3, -1));
    let mut preferred = 0;
    ok!(cuMemRangeGetAttribute(
        &raw mut preferred,
        4,
        2,
        address,
        10_000
    ));
    assert_eq!(preferred, -1);
    refused!(cuMemAdvise(address, 10_001, 3, -1), INVALID_VALUE);
    refused!(cuMemFreeHost(address), INVALID_VALUE);
    ok!(cuMemFree_v2(address));
    refused!(cuMemAdvise(address, 1, 3, -1), INVALID_VALUE);
}

#[test]
fn registered_memory_is_copied_and_then_seen_by_the_gpu() {
    let _alone = causeway_cuda_tests::alone();
    let mut own = vec![1_u8; 3 << 20];
    let address = own.as_mut_ptr() as u64;
    // Memory of other threads may be on a page of which only a part is registered.
    let inside = address.next_multiple_of(4096) + 4096;
    let offset = (inside - address) as usize;
    let mut pointer = 0;
    ok!(cuMemHostRegister_v2(inside + 8, 5000, 0));
    refused!(
        cuMemHostGetDevicePointer_v2(&raw mut pointer, inside + 8, 0),
        NOT_SUPPORTED
    );
    ok!(cuMemHostUnregister(inside + 8));
    ok!(cuMemHostRegister_v2(inside, 2 << 20, 0));
    refused!(cuMemHostRegister_v2(inside + 1, 5, 0), 712);
    let gpu = device(4096);
    ok!(cuMemcpy(gpu, inside, 4096));
    ok!(cuMemHostGetDevicePointer_v2(&raw mut pointer, inside, 0));
    ok!(cuMemsetD8_v2(inside + 8, 9, 100));
    ok!(cuMemcpy(inside + 1000, gpu, 10));
    own[offset + 200] = 77;
    ok!(cuMemcpy(gpu, inside, 300));
    ok!(cuMemHostUnregister(inside));
    refused!(cuMemHostUnregister(inside), 713);
    let mut wanted = vec![1_u8; 3 << 20];
    wanted[offset + 8..offset + 108].fill(9);
    wanted[offset + 200] = 77;
    assert!(own == wanted, "the content stays");
    let mut back = vec![0_u8; 300];
    ok!(cuMemcpy(back.as_mut_ptr() as u64, gpu, 300));
    assert!(back == wanted[offset..offset + 300]);
    ok!(cuMemFree_v2(gpu));
}

#[test]
fn mapped_memory_is_used_across_its_pieces() {
    let _alone = causeway_cuda_tests::alone();
    // SAFETY: zeros are a value of the structure.
    let mut wish: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    wish.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wish.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    wish.requestedHandleTypes =
        sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let mut start = 0;
    ok!(cuMemAddressReserve(
        &raw mut start,
        4 * GRANULARITY,
        0,
        0,
        0
    ));
    let mut handles = [0; 2];
    for (index, handle) in handles.iter_mut().enumerate() {
        ok!(cuMemCreate(handle, GRANULARITY, &raw const wish, 0));
        let at = start + (index * GRANULARITY) as u64;
        ok!(cuMemMap(at, GRANULARITY, 0, *handle, 0));
        refused!(cuMemMap(at, GRANULARITY, 0, *handle, 0), INVALID_VALUE);
    }
    refused!(cuMemsetD8_v2(start, 1, 1), INVALID_VALUE);
    let access = sys::CUmemAccessDesc {
        location: wish.location,
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    ok!(cuMemSetAccess(start, 2 * GRANULARITY, &raw const access, 1));
    let border = start + GRANULARITY as u64;
    ok!(cuMemsetD8_v2(start, 0, 2 * GRANULARITY));
    let content: Vec<u8> = (0..200).collect();
    ok!(cuMemcpy(border - 100, content.as_ptr() as u64, 200));
    let mut back = vec![0_u8; 200];
    ok!(cuMemcpy(back.as_mut_ptr() as u64, border - 100, 200));
    assert_eq!(back, content);
    refused!(cuMemsetD8_v2(border, 0, GRANULARITY + 1), INVALID_VALUE);
    let mut descriptor = 0;
    ok!(cuMemExportToShareableHandle(
        &raw mut descriptor,
        handles[1],
        1,
        0
    ));
    let mut imported = 0;
    // Memory of the same process: the mediator says whether that may be.
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { cuMemImportFromShareableHandle(&raw mut imported, descriptor as usize, 1) };
    if code == 0 {
        let other = start + 3 * GRANULARITY as u64;
        ok!(cuMemMap(other, GRANULARITY, 0, imported, 0));
        ok!(cuMemSetAccess(other, GRANULARITY, &raw const access, 1));
        ok!(cuMemcpy(back.as_mut_ptr() as u64, other, 100));
        assert_eq!(back[..100], content[100..]);
        ok!(cuMemUnmap(other, GRANULARITY));
        ok!(cuMemRelease(imported));
    }
    refused!(cuMemAddressFree(start, 4 * GRANULARITY), INVALID_VALUE);
    handles.iter().for_each(|handle| ok!(cuMemRelease(*handle)));
    ok!(cuMemcpy(back.as_mut_ptr() as u64, border, 100));
    ok!(cuMemUnmap(start, 2 * GRANULARITY));
    refused!(
        cuMemcpy(back.as_mut_ptr() as u64, border, 100),
        INVALID_VALUE
    );
    ok!(cuMemAddressFree(start, 4 * GRANULARITY));
}
