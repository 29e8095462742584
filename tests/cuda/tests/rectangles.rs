//! Copies and fills of rows between memory that the device reaches.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::c_void;

use cudarc::driver::sys;

unsafe extern "C" {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemAllocHost_v2(address: *mut *mut u8, bytes: usize) -> u32;
    fn cuMemFreeHost(address: *mut u8) -> u32;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn cuMemcpy2D_v2(copy: *const sys::CUDA_MEMCPY2D) -> u32;
    fn cuMemcpy2DAsync_v2(copy: *const sys::CUDA_MEMCPY2D, stream: usize) -> u32;
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
    fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, w: usize, h: usize) -> u32;
    fn cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, w: usize, h: usize) -> u32;
    fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, w: usize, h: usize) -> u32;
    fn cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, w: usize, h: usize, s: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
}

const INVALID_VALUE: u32 = 1;

/// Calls a function of the driver API, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: pointers are those of live variables, as large as the call says.
        assert_eq!(unsafe { $call }, 0, "{}", stringify!($call))
    };
}

/// Calls a function of the driver API, which must refuse a value.
macro_rules! refused {
    ($call:expr) => {
        // SAFETY: as for `ok`; other pointers are refused before they are used.
        assert_eq!(unsafe { $call }, INVALID_VALUE, "{}", stringify!($call))
    };
}

/// Device memory with these bytes.
fn holding(content: &[u8]) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, content.len()));
    ok!(cuMemcpyHtoD_v2(
        address,
        content.as_ptr().cast(),
        content.len()
    ));
    address
}

fn content(address: u64, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    ok!(cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), address, bytes));
    found
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// A copy between addresses, of rows of `width` bytes.
fn copy(
    to: (u64, usize),
    from: (u64, usize),
    (width, height): (usize, usize),
) -> sys::CUDA_MEMCPY2D {
    let unified = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: unified,
        srcHost: std::ptr::null(),
        srcDevice: from.0,
        srcArray: std::ptr::null_mut(),
        srcPitch: from.1,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: unified,
        dstHost: std::ptr::null_mut(),
        dstDevice: to.0,
        dstArray: std::ptr::null_mut(),
        dstPitch: to.1,
        WidthInBytes: width,
        Height: height,
    }
}

#[test]
fn columns_of_one_matrix_are_copied_to_others() {
    causeway_cuda_tests::library();
    let before = pattern(5000 * 64);
    let matrix = holding(&before);
    let half = copy((matrix + 32, 64), (matrix, 64), (32, 5000));
    ok!(cuMemcpy2D_v2(&raw const half));
    let found = content(matrix, before.len());
    for (row, (found, before)) in found.chunks(64).zip(before.chunks(64)).enumerate() {
        assert_eq!(
            (&found[..32], &found[32..]),
            (&before[..32], &before[..32]),
            "row {row}"
        );
    }
    ok!(cuMemFree_v2(matrix));
}

#[test]
fn rows_that_overlap_are_copied_one_behind_the_other() {
    causeway_cuda_tests::library();
    let before = pattern(100 * 16);
    let memory = holding(&before);
    let mut wanted = before;
    for row in 0..50 {
        wanted.copy_within(row * 16 + 16..row * 16 + 28, row * 16);
    }
    let up = copy((memory, 16), (memory + 16, 16), (12, 50));
    ok!(cuMemcpy2D_v2(&raw const up));
    assert_eq!(content(memory, wanted.len()), wanted);
    ok!(cuMemFree_v2(memory));
}

/// More rows than one packet takes.
#[test]
fn a_million_rows_and_some_are_copied_and_filled() {
    const ROWS: usize = (1 << 20) + 3;
    causeway_cuda_tests::library();
    let before = pattern(3 * ROWS);
    let (from, to) = (holding(&before), holding(&vec![9; 2 * ROWS]));
    let columns = copy((to, 2), (from, 3), (1, ROWS));
    ok!(cuMemcpy2D_v2(&raw const columns));
    let found = content(to, 2 * ROWS);
    for (row, bytes) in found.chunks(2).enumerate() {
        assert_eq!(bytes, [before[3 * row], 9], "row {row}");
    }
    ok!(cuMemsetD2D8_v2(to + 1, 2, 5, 1, ROWS));
    let found = content(to, 2 * ROWS);
    for (row, bytes) in found.chunks(2).enumerate() {
        assert_eq!(bytes, [before[3 * row], 5], "row {row}");
    }
    ok!(cuMemFree_v2(from));
    ok!(cuMemFree_v2(to));
}

#[test]
fn rows_are_copied_between_pinned_and_device_memory() {
    causeway_cuda_tests::library();
    let before = pattern(200 * 32);
    let device = holding(&before);
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemAllocHost_v2(&raw mut pinned, 200 * 16));
    let down = copy((pinned as u64, 16), (device + 8, 32), (16, 200));
    ok!(cuMemcpy2D_v2(&raw const down));
    // SAFETY: so many bytes were allocated and written.
    let found = unsafe { std::slice::from_raw_parts(pinned, 200 * 16) };
    for (found, before) in found.chunks(16).zip(before.chunks(32)) {
        assert_eq!(found, &before[8..24]);
    }
    ok!(cuMemFreeHost(pinned));
    ok!(cuMemFree_v2(device));
}

#[test]
fn elements_of_all_sizes_fill_rows() {
    causeway_cuda_tests::library();
    let memory = holding(&[0; 512]);
    ok!(cuMemsetD2D8_v2(memory, 16, 0xab, 3, 2));
    ok!(cuMemsetD2D16_v2(memory + 64, 16, 0x1234, 3, 2));
    ok!(cuMemsetD2D32_v2(memory + 128, 16, 0x1234_5678, 3, 2));
    let found = content(memory, 512);
    let mut wanted = [0; 512];
    for row in [0, 16] {
        wanted[row..row + 3].fill(0xab);
        wanted[64 + row..70 + row].copy_from_slice(&[0x34, 0x12].repeat(3));
        wanted[128 + row..140 + row].copy_from_slice(&[0x78, 0x56, 0x34, 0x12].repeat(3));
    }
    assert_eq!(found, wanted);
    ok!(cuMemFree_v2(memory));
}

#[test]
fn rows_beyond_an_allocation_or_of_a_wrong_pitch_are_refused() {
    causeway_cuda_tests::library();
    let (one, other) = (holding(&[1; 4096]), holding(&[2; 4096]));
    let tall = copy((one, 64), (other, 64), (32, 64));
    ok!(cuMemcpy2D_v2(&raw const tall));
    for wrong in [
        sys::CUDA_MEMCPY2D {
            Height: 1 << 32,
            ..tall
        },
        sys::CUDA_MEMCPY2D {
            WidthInBytes: 65,
            ..tall
        },
        sys::CUDA_MEMCPY2D {
            srcPitch: 31,
            ..tall
        },
        sys::CUDA_MEMCPY2D {
            dstPitch: 1 << 40,
            ..tall
        },
        sys::CUDA_MEMCPY2D {
            dstPitch: usize::MAX,
            ..tall
        },
        sys::CUDA_MEMCPY2D {
            Height: usize::MAX,
            ..tall
        },
    ] {
        refused!(cuMemcpy2D_v2(&raw const wrong));
    }
    let none = sys::CUDA_MEMCPY2D { Height: 0, ..tall };
    ok!(cuMemcpy2D_v2(&raw const none));
    ok!(cuMemsetD2D8_v2(one, 64, 3, 64, 64));
    refused!(cuMemsetD2D8_v2(one, 64, 3, 64, 1 << 32));
    refused!(cuMemsetD2D8_v2(one, 63, 3, 64, 2));
    refused!(cuMemsetD2D16_v2(one + 1, 64, 3, 4, 2));
    refused!(cuMemsetD2D16_v2(one, 63, 3, 4, 2));
    ok!(cuMemsetD2D8_v2(one, 1, 3, 0, 65));
    assert_eq!(content(one, 4096), [3; 4096]);
    assert_eq!(content(other, 4096), [2; 4096]);
    ok!(cuMemFree_v2(one));
    ok!(cuMemFree_v2(other));
}

#[test]
fn captured_rows_are_copied_and_filled_by_every_launch() {
    causeway_cuda_tests::library();
    let (one, other) = (holding(&pattern(1024)), holding(&[0; 1024]));
    let (mut stream, mut graph, mut executable) = (0, 0, 0);
    ok!(cuStreamCreate(&raw mut stream, 1));
    ok!(cuStreamBeginCapture_v2(stream, 2));
    let rows = copy((other, 32), (one, 16), (16, 32));
    ok!(cuMemcpy2DAsync_v2(&raw const rows, stream));
    ok!(cuMemsetD2D32Async(
        other + 16,
        32,
        0x0606_0606,
        2,
        32,
        stream
    ));
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    for _ in 0..2 {
        ok!(cuMemsetD8_v2(other, 1, 1024));
        ok!(cuGraphLaunch(executable, stream));
        ok!(cuStreamSynchronize(stream));
        let found = content(other, 1024);
        for (row, (found, source)) in found.chunks(32).zip(pattern(1024).chunks(16)).enumerate() {
            assert_eq!(&found[..16], source, "row {row}");
            assert_eq!((&found[16..24], &found[24..]), (&[6; 8][..], &[1; 8][..]));
        }
    }
    ok!(cuMemFree_v2(one));
    ok!(cuMemFree_v2(other));
}

/// As nodes of a graph, copies read and write memory of the program when the graph runs.
#[test]
fn captured_copies_of_memory_that_only_the_processor_reaches() {
    causeway_cuda_tests::library();
    let device = holding(&[0; 64 * 32]);
    let (mut given, mut found) = (vec![0_u8; 64 * 16], vec![0_u8; 64 * 16]);
    let (mut stream, mut graph, mut executable) = (0, 0, 0);
    ok!(cuStreamCreate(&raw mut stream, 1));
    ok!(cuStreamBeginCapture_v2(stream, 2));
    // Rows of 16 bytes, which lie 32 bytes apart on the device and nowhere else.
    let up = copy((device, 32), (given.as_ptr() as u64, 16), (16, 64));
    ok!(cuMemcpy2DAsync_v2(&raw const up, stream));
    let down = copy((found.as_mut_ptr() as u64, 16), (device, 32), (16, 64));
    ok!(cuMemcpy2DAsync_v2(&raw const down, stream));
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    for round in 0..3_u8 {
        given.copy_from_slice(&pattern(64 * 16));
        given[0] = round;
        // Three times in a row: the staging memory is the node's own.
        for _ in 0..3 {
            ok!(cuGraphLaunch(executable, stream));
        }
        ok!(cuStreamSynchronize(stream));
        assert_eq!(found, given, "round {round}");
        let rows = content(device, 64 * 32);
        for (row, (rows, given)) in rows.chunks(32).zip(given.chunks(16)).enumerate() {
            assert_eq!(
                (&rows[..16], &rows[16..]),
                (given, &[0; 16][..]),
                "row {row}"
            );
        }
        found.fill(0xff);
    }
    // What is under way stays as it is when the graph ends.
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuGraphExecDestroy(executable));
    ok!(cuGraphDestroy(graph));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, given);
    ok!(cuMemFree_v2(device));
}
