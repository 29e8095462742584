//! Device memory: allocation, copies in all directions, rectangles, fills, and what pointers are.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::c_void;

use cudarc::driver::sys;

unsafe extern "C" {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemAllocPitch_v2(a: *mut u64, pitch: *mut usize, w: usize, h: usize, e: u32) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) -> u32;
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) -> u32;
    fn cuMemcpy(to: u64, from: u64, bytes: usize) -> u32;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32;
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuMemcpy2D_v2(copy: *const sys::CUDA_MEMCPY2D) -> u32;
    fn cuMemcpy3D_v2(copy: *const sys::CUDA_MEMCPY3D) -> u32;
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) -> u32;
    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> u32;
    fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, w: usize, h: usize) -> u32;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> u32;
    fn cuMemFreeAsync(address: u64, stream: usize) -> u32;
    fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: i32) -> u32;
    fn cuMemPoolGetAttribute(pool: usize, attribute: u32, value: *mut u64) -> u32;
    fn cuPointerGetAttribute(data: *mut u64, attribute: u32, address: u64) -> u32;
    fn cuPointerGetAttributes(
        count: u32,
        attributes: *const u32,
        data: *const *mut u64,
        address: u64,
    ) -> u32;
    fn cuCtxGetCurrent(context: *mut usize) -> u32;
    fn cuCtxSetCurrent(context: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuIpcGetMemHandle(handle: *mut sys::CUipcMemHandle, address: u64) -> u32;
    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: sys::CUipcMemHandle, flags: u32) -> u32;
    fn cuIpcCloseMemHandle(address: u64) -> u32;
}

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;

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

fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, bytes));
    address
}

fn upload(to: u64, from: &[u8]) {
    ok!(cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len()));
}

fn download(from: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    ok!(cuMemcpyDtoH_v2(into.as_mut_ptr().cast(), from, bytes));
    into
}

/// Bytes in which no two parts are the same.
fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn pageable_memory_is_copied_at_any_size_and_offset() {
    let _alone = causeway_cuda_tests::alone();
    let device = allocate(12 << 20);
    for (index, bytes) in [1, 3, 63, 64, 4097, 1 << 20, (1 << 20) + 1, (9 << 20) + 13]
        .into_iter()
        .enumerate()
    {
        let offset = [0, 1, 7, 255][index % 4];
        let content = pattern(bytes, index as u32);
        ok!(cuMemsetD8_v2(device, 0xee, 12 << 20));
        upload(device + offset, &content);
        let found = download(device, bytes + offset as usize + 1);
        let (before, rest) = found.split_at(offset as usize);
        assert!(before.iter().all(|byte| *byte == 0xee), "{bytes} bytes");
        assert!(rest[..bytes] == content, "{bytes} bytes");
        assert_eq!(rest[bytes], 0xee, "{bytes} bytes");
    }
    ok!(cuMemFree_v2(device));
}

#[test]
fn many_small_copies_go_around_the_staging_memory_in_order() {
    let _alone = causeway_cuda_tests::alone();
    let device = allocate(4096);
    for round in 0..3000_u32 {
        let content = pattern(4096, round);
        let from = content.as_ptr().cast();
        ok!(cuMemcpyHtoDAsync_v2(device, from, content.len(), 0));
    }
    assert!(download(device, 4096) == pattern(4096, 2999));
    ok!(cuMemFree_v2(device));
}

#[test]
fn device_memory_is_copied_also_onto_itself() {
    let _alone = causeway_cuda_tests::alone();
    let (one, other) = (allocate(10_000), allocate(10_000));
    let content = pattern(9001, 5);
    upload(one + 3, &content);
    ok!(cuMemcpyDtoD_v2(other + 1, one + 3, 9001));
    assert!(download(other + 1, 9001) == content);
    // As memmove: the ranges overlap.
    ok!(cuMemcpyDtoD_v2(one + 103, one + 3, 9001));
    assert!(download(one + 103, 9001) == content);
    ok!(cuMemcpyDtoD_v2(one + 3, one + 103, 9001));
    assert!(download(one + 3, 9001) == content);
    ok!(cuMemcpy(one, one, 100));
    ok!(cuMemFree_v2(one));
    ok!(cuMemFree_v2(other));
}

#[test]
fn wrong_addresses_and_sizes_are_refused_and_harm_nothing() {
    let _alone = causeway_cuda_tests::alone();
    let device = allocate(1000);
    let mut byte = 0_u8;
    let into = (&raw mut byte).cast();
    let mut address = 0;
    refused!(cuMemAlloc_v2(&raw mut address, 0), INVALID_VALUE);
    refused!(cuMemAlloc_v2(std::ptr::null_mut(), 1), INVALID_VALUE);
    refused!(cuMemAlloc_v2(&raw mut address, usize::MAX), OUT_OF_MEMORY);
    refused!(cuMemAlloc_v2(&raw mut address, 1 << 50), OUT_OF_MEMORY);
    refused!(cuMemFree_v2(device + 256), INVALID_VALUE);
    refused!(cuMemFree_v2(0x1234_5678), INVALID_VALUE);
    ok!(cuMemFree_v2(0));
    refused!(cuMemcpyDtoD_v2(device, device + 500, 501), INVALID_VALUE);
    refused!(cuMemcpyDtoH_v2(into, device + 1000, 1), INVALID_VALUE);
    refused!(cuMemcpyHtoD_v2(into as u64, into, 1), INVALID_VALUE);
    refused!(cuMemcpyHtoD_v2(device, std::ptr::null(), 1), INVALID_VALUE);
    refused!(cuMemcpyHtoD_v2(device, into, usize::MAX), INVALID_VALUE);
    refused!(cuMemsetD8_v2(device, 0, 1001), INVALID_VALUE);
    refused!(cuMemsetD32_v2(device + 2, 0, 1), INVALID_VALUE);
    refused!(cuMemsetD32_v2(into as u64 & !3, 0, 1), INVALID_VALUE);
    ok!(cuMemFree_v2(device));
    refused!(cuMemFree_v2(device), INVALID_VALUE);
    refused!(cuMemcpyDtoH_v2(into, device, 1), INVALID_VALUE);
    ok!(cuCtxSynchronize());
}

#[test]
fn fills_have_the_width_that_they_are_asked_for() {
    let _alone = causeway_cuda_tests::alone();
    let device = allocate(256);
    ok!(cuMemsetD8_v2(device, 1, 256));
    ok!(cuMemsetD8_v2(device + 3, 0xab, 5));
    ok!(cuMemsetD16_v2(device + 10, 0x1234, 3));
    ok!(cuMemsetD32_v2(device + 20, 0xdead_beef, 2));
    let mut wanted = vec![1; 256];
    wanted[3..8].fill(0xab);
    wanted[10..16].copy_from_slice(&[0x34, 0x12, 0x34, 0x12, 0x34, 0x12]);
    wanted[20..28].copy_from_slice(&[0xef, 0xbe, 0xad, 0xde, 0xef, 0xbe, 0xad, 0xde]);
    // Two rows of one word, 16 bytes apart.
    ok!(cuMemsetD2D32_v2(device + 64, 16, 7, 1, 2));
    wanted[64..68].copy_from_slice(&[7, 0, 0, 0]);
    wanted[80..84].copy_from_slice(&[7, 0, 0, 0]);
    assert_eq!(download(device, 256), wanted);
    refused!(cuMemsetD2D32_v2(device, 4, 7, 2, 2), INVALID_VALUE);
    ok!(cuMemFree_v2(device));
}

#[test]
fn rectangles_keep_what_is_beside_them() {
    let _alone = causeway_cuda_tests::alone();
    let (mut device, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(
        &raw mut device,
        &raw mut pitch,
        100,
        50,
        4
    ));
    assert_eq!(pitch % 512, 0);
    ok!(cuMemsetD8_v2(device, 0xcc, pitch * 50));
    let content = pattern(120 * 60, 9);
    let to_device = sys::CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: content.as_ptr().cast(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: 120,
        dstXInBytes: 5,
        dstY: 3,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: device,
        dstArray: std::ptr::null_mut(),
        dstPitch: pitch,
        WidthInBytes: 90,
        Height: 40,
    };
    ok!(cuMemcpy2D_v2(&raw const to_device));
    let found = download(device, pitch * 50);
    for (y, row) in found.chunks(pitch).enumerate() {
        for (x, byte) in row.iter().enumerate() {
            let inside = (5..95).contains(&x) && (3..43).contains(&y);
            let wanted = match inside {
                true => content[(y - 3 + 1) * 120 + x - 5 + 2],
                false => 0xcc,
            };
            assert_eq!(*byte, wanted, "column {x} of row {y}");
        }
    }
    let mut back = vec![0; 90 * 40];
    let to_host = sys::CUDA_MEMCPY2D {
        srcXInBytes: 5,
        srcY: 3,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: device,
        srcPitch: pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstDevice: 0,
        dstPitch: 90,
        ..to_device
    };
    ok!(cuMemcpy2D_v2(&raw const to_host));
    for (y, row) in back.chunks(90).enumerate() {
        assert_eq!(row, &content[(y + 1) * 120 + 2..][..90], "row {y}");
    }
    let too_high = sys::CUDA_MEMCPY2D {
        Height: usize::MAX / 512,
        ..to_device
    };
    refused!(cuMemcpy2D_v2(&raw const too_high), INVALID_VALUE);
    ok!(cuMemFree_v2(device));
}

#[test]
fn boxes_are_copied_within_the_device() {
    let _alone = causeway_cuda_tests::alone();
    let (from, to) = (allocate(4096), allocate(4096));
    let content = pattern(4096, 3);
    upload(from, &content);
    ok!(cuMemsetD8_v2(to, 0, 4096));
    let null = std::ptr::null_mut();
    let copy = sys::CUDA_MEMCPY3D {
        srcXInBytes: 1,
        srcY: 2,
        srcZ: 3,
        srcLOD: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: null,
        srcDevice: from,
        srcArray: null.cast(),
        reserved0: null,
        srcPitch: 16,
        srcHeight: 8,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstHost: null,
        dstDevice: to,
        dstArray: null.cast(),
        reserved1: null,
        dstPitch: 32,
        dstHeight: 4,
        WidthInBytes: 9,
        Height: 3,
        Depth: 4,
    };
    ok!(cuMemcpy3D_v2(&raw const copy));
    let found = download(to, 4096);
    let mut wanted = vec![0; 4096];
    for (z, y) in (0..4).flat_map(|z| (0..3).map(move |y| (z, y))) {
        let source = &content[((z + 3) * 8 + y + 2) * 16 + 1..][..9];
        wanted[(z * 4 + y) * 32..][..9].copy_from_slice(source);
    }
    assert_eq!(found, wanted);
    ok!(cuMemFree_v2(from));
    ok!(cuMemFree_v2(to));
}

#[test]
fn memory_is_reused_while_work_with_it_is_under_way() {
    let _alone = causeway_cuda_tests::alone();
    let mut stream = 0;
    // One that waits for the default stream.
    ok!(cuStreamCreate(&raw mut stream, 0));
    let kept = allocate(40 << 20);
    for round in 0..8_u8 {
        // Larger than a chunk of the pool, and smaller.
        for bytes in [40 << 20, 1 << 20] {
            let device = allocate(bytes);
            ok!(cuMemsetD8_v2(device, round, bytes));
            ok!(cuMemcpyDtoDAsync_v2(kept, device, bytes, stream));
            ok!(cuMemFree_v2(device));
        }
        let next = allocate(1 << 20);
        ok!(cuMemsetD8_v2(next, 0xff, 1 << 20));
        ok!(cuMemFree_v2(next));
        let found = download(kept, 40 << 20);
        assert!(found.iter().all(|byte| *byte == round), "round {round}");
    }
    ok!(cuMemFree_v2(kept));
    ok!(cuCtxSynchronize());
}

#[test]
fn threads_allocate_at_once_and_never_share() {
    let _alone = causeway_cuda_tests::alone();
    std::thread::scope(|scope| {
        for number in 0..64_u8 {
            scope.spawn(move || {
                causeway_cuda_tests::library();
                for round in 0..20_usize {
                    let bytes = 1 + round * 977;
                    let pieces = [allocate(bytes), allocate(bytes)];
                    for (index, piece) in pieces.iter().enumerate() {
                        ok!(cuMemsetD8_v2(*piece, number * 2 + index as u8, bytes));
                    }
                    for (index, piece) in pieces.iter().enumerate() {
                        let wanted = number * 2 + index as u8;
                        let found = download(*piece, bytes);
                        assert!(found.iter().all(|byte| *byte == wanted), "thread {number}");
                        ok!(cuMemFree_v2(*piece));
                    }
                }
            });
        }
    });
}

#[test]
fn pointers_are_told_with_their_allocation() {
    let _alone = causeway_cuda_tests::alone();
    let device = allocate(1000);
    let (mut base, mut bytes) = (0, 0);
    ok!(cuMemGetAddressRange_v2(
        &raw mut base,
        &raw mut bytes,
        device + 999
    ));
    assert_eq!((base, bytes), (device, 1000));
    let attribute = |attribute, address| {
        let mut value = 0;
        ok!(cuPointerGetAttribute(&raw mut value, attribute, address));
        value
    };
    assert_eq!(attribute(2, device + 1), 2, "memory of the device");
    assert_eq!(attribute(3, device + 1), device + 1);
    assert_eq!(attribute(11, device + 1), device);
    assert_eq!(attribute(12, device + 1), 1000);
    let other = allocate(1);
    assert_ne!(attribute(7, device), attribute(7, other));
    let mut value = 0;
    refused!(
        cuPointerGetAttribute(&raw mut value, 2, &raw const value as u64),
        INVALID_VALUE
    );
    refused!(
        cuPointerGetAttribute(&raw mut value, 4, device),
        INVALID_VALUE
    );
    // Several attributes are told without a context, also of memory that CUDA does not know.
    let (mut context, kinds) = (0, [2]);
    ok!(cuCtxGetCurrent(&raw mut context));
    ok!(cuCtxSetCurrent(0));
    for (address, wanted) in [(device, 2), (&raw const value as u64, 0)] {
        let mut kind = 7;
        let into = [&raw mut kind];
        ok!(cuPointerGetAttributes(
            1,
            kinds.as_ptr(),
            into.as_ptr(),
            address
        ));
        assert_eq!(kind, 7 & !u64::from(u32::MAX) | wanted);
    }
    ok!(cuCtxSetCurrent(context));
    ok!(cuMemFree_v2(device));
    ok!(cuMemFree_v2(other));
}

#[test]
fn pools_count_what_streams_allocate() {
    let _alone = causeway_cuda_tests::alone();
    let mut pool = 0;
    ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    let used = || {
        let mut bytes = 0;
        ok!(cuMemPoolGetAttribute(pool, 7, &raw mut bytes));
        bytes
    };
    let mut address = 0;
    ok!(cuMemAllocAsync(&raw mut address, 4096, 0));
    assert_eq!(used(), 4096);
    ok!(cuMemsetD8_v2(address, 9, 4096));
    assert!(download(address, 4096).iter().all(|byte| *byte == 9));
    ok!(cuMemFreeAsync(address, 0));
    assert_eq!(used(), 0);
    refused!(cuMemFreeAsync(address, 0), INVALID_VALUE);
}

#[test]
fn the_device_tells_how_much_is_free() {
    let _alone = causeway_cuda_tests::alone();
    let (mut free, mut all) = (0, 0);
    ok!(cuMemGetInfo_v2(&raw mut free, &raw mut all));
    assert!(free <= all && all > 0);
    let mut address = 0;
    refused!(cuMemAlloc_v2(&raw mut address, all + 1), OUT_OF_MEMORY);
}

#[test]
fn memory_of_another_process_ends_when_it_is_freed() {
    let _alone = causeway_cuda_tests::alone();
    let shared = allocate(4096);
    let other = allocate(4096);
    let exported = |address| {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        ok!(cuIpcGetMemHandle(&raw mut handle, address));
        handle
    };
    // As if it came from another process: the last word is the number of the process.
    let foreign = |mut handle: sys::CUipcMemHandle| {
        handle.reserved[60] ^= 1;
        handle
    };
    let handle = exported(shared);
    assert_eq!(exported(shared).reserved, handle.reserved, "one export");
    let handles = [foreign(handle), foreign(exported(other))];
    let mut opened = [0; 2];
    for (address, handle) in opened.iter_mut().zip(handles) {
        ok!(cuIpcOpenMemHandle_v2(address, handle, 1));
    }
    ok!(cuMemsetD8_v2(shared, 5, 4096));
    ok!(cuMemsetD8_v2(other, 6, 4096));
    assert_eq!(download(opened[0], 4096), [5; 4096]);
    ok!(cuMemFree_v2(shared));
    let mut late = 0;
    refused!(
        cuIpcOpenMemHandle_v2(&raw mut late, handles[0], 1),
        INVALID_VALUE
    );
    // Memory beside it stays.
    assert_eq!(download(opened[1], 4096), [6; 4096]);
    ok!(cuIpcOpenMemHandle_v2(&raw mut late, handles[1], 1));
    for address in [opened[0], opened[1], late] {
        ok!(cuIpcCloseMemHandle(address));
    }
    ok!(cuMemFree_v2(other));
}
