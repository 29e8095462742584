//! Arrays, textures and surfaces: what calls answer, and what copies move.

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
    fn cuMemcpyHtoA_v2(to: usize, offset: usize, from: *const u8, bytes: usize) -> u32;
    fn cuMemcpyAtoH_v2(to: *mut u8, from: usize, offset: usize, bytes: usize) -> u32;
    fn cuMemcpyDtoA_v2(to: usize, offset: usize, from: u64, bytes: usize) -> u32;
    fn cuMemcpyAtoD_v2(to: u64, from: usize, offset: usize, bytes: usize) -> u32;
    fn cuMemcpyAtoA_v2(to: usize, to_at: usize, from: usize, at: usize, bytes: usize) -> u32;
    fn cuMemcpyHtoAAsync_v2(to: usize, at: usize, from: *const u8, bytes: usize, s: usize) -> u32;
    fn cuMemcpyAtoHAsync_v2(to: *mut u8, from: usize, at: usize, bytes: usize, s: usize) -> u32;
    fn cuMemcpy2D_v2(copy: *const sys::CUDA_MEMCPY2D) -> u32;
    fn cuMemcpy3D_v2(copy: *const sys::CUDA_MEMCPY3D) -> u32;
    fn cuMemcpy3DAsync_v2(copy: *const sys::CUDA_MEMCPY3D, stream: usize) -> u32;
    fn cuArrayCreate_v2(array: *mut usize, given: *const sys::CUDA_ARRAY_DESCRIPTOR) -> u32;
    fn cuArray3DCreate_v2(array: *mut usize, given: *const sys::CUDA_ARRAY3D_DESCRIPTOR) -> u32;
    fn cuArrayGetDescriptor_v2(into: *mut sys::CUDA_ARRAY_DESCRIPTOR, array: usize) -> u32;
    fn cuArray3DGetDescriptor_v2(into: *mut sys::CUDA_ARRAY3D_DESCRIPTOR, array: usize) -> u32;
    fn cuArrayDestroy(array: usize) -> u32;
    fn cuTexObjectCreate(
        texture: *mut u64,
        resource: *const sys::CUDA_RESOURCE_DESC,
        sampling: *const sys::CUDA_TEXTURE_DESC,
        view: *const sys::CUDA_RESOURCE_VIEW_DESC,
    ) -> u32;
    fn cuTexObjectDestroy(texture: u64) -> u32;
    fn cuTexObjectGetResourceDesc(into: *mut sys::CUDA_RESOURCE_DESC, texture: u64) -> u32;
    fn cuTexObjectGetTextureDesc(into: *mut sys::CUDA_TEXTURE_DESC, texture: u64) -> u32;
    fn cuTexObjectGetResourceViewDesc(into: *mut sys::CUDA_RESOURCE_VIEW_DESC, t: u64) -> u32;
    fn cuSurfObjectCreate(surface: *mut u64, resource: *const sys::CUDA_RESOURCE_DESC) -> u32;
    fn cuSurfObjectDestroy(surface: u64) -> u32;
    fn cuSurfObjectGetResourceDesc(into: *mut sys::CUDA_RESOURCE_DESC, surface: u64) -> u32;
    fn cuDeviceGetTexture1DLinearMaxWidth(n: *mut usize, f: u32, channels: u32, d: i32) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphAddMemcpyNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        copy: *const sys::CUDA_MEMCPY3D,
        context: usize,
    ) -> u32;
    fn cuGraphMemcpyNodeGetParams(node: usize, into: *mut sys::CUDA_MEMCPY3D) -> u32;
    fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
    fn cuModuleLoadData(module: *mut usize, image: *const u8) -> u32;
    fn cuModuleUnload(module: usize) -> u32;
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const u8) -> u32;
    fn cuLaunchKernel(
        function: usize,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: usize,
        parameters: *const *const c_void,
        extra: usize,
    ) -> u32;
    fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) -> u32;
    fn cuCtxDestroy_v2(context: usize) -> u32;
}

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;
const NOT_SUPPORTED: u32 = 801;
/// Mode of a capture that forbids nothing to other threads, such as those of other tests.
const THREAD_LOCAL: u32 = 1;

/// Calls a function of the driver API, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: pointers are those of live variables, as large as the call says.
        assert_eq!(unsafe { $call }, 0, "{}", stringify!($call))
    };
}

/// Calls a function of the driver API, which must answer an error.
macro_rules! refused {
    ($code:expr, $call:expr) => {
        // SAFETY: as for `ok`; other pointers are refused before they are used.
        assert_eq!(unsafe { $call }, $code, "{}", stringify!($call))
    };
}

fn zeroed<T>() -> T {
    // SAFETY: for structures of cuda.h, which are numbers and unions of numbers; the enumerations
    // in them that have no 0 are given a value before use.
    unsafe { std::mem::zeroed() }
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at * 7 + at / 256 * 3 + at / 65_536 + seed) as u8)
        .collect()
}

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

fn array(size: [usize; 3], format: u32, channels: u32, flags: u32) -> usize {
    let mut made = 0;
    ok!(cuArray3DCreate_v2(
        &raw mut made,
        &described(size, format, channels, flags)
    ));
    made
}

fn described(
    [width, height, depth]: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
) -> sys::CUDA_ARRAY3D_DESCRIPTOR {
    let mut given: [u64; 5] = [width as u64, height as u64, depth as u64, 0, 0];
    given[3] = u64::from(format) | u64::from(channels) << 32;
    given[4] = flags.into();
    // SAFETY: the layout of the structure; formats of the tests are those of cuda.h.
    unsafe { std::mem::transmute(given) }
}

/// One side of a copy: memory at an address with a pitch and rows of a slice, or an array.
#[derive(Clone, Copy)]
enum End {
    Host(*mut u8, usize, usize),
    Device(u64, usize, usize),
    Array(usize, [usize; 3]),
}

fn copy(to: End, from: End, [width, height, depth]: [usize; 3]) -> sys::CUDA_MEMCPY3D {
    let mut copy: sys::CUDA_MEMCPY3D = zeroed_copy();
    match to {
        End::Host(at, pitch, rows) => {
            copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
            (copy.dstHost, copy.dstPitch, copy.dstHeight) = (at.cast(), pitch, rows);
        }
        End::Device(at, pitch, rows) => {
            copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
            (copy.dstDevice, copy.dstPitch, copy.dstHeight) = (at, pitch, rows);
        }
        End::Array(array, [x, y, z]) => {
            copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
            copy.dstArray = array as sys::CUarray;
            (copy.dstXInBytes, copy.dstY, copy.dstZ) = (x, y, z);
        }
    }
    match from {
        End::Host(at, pitch, rows) => {
            copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
            (copy.srcHost, copy.srcPitch, copy.srcHeight) = (at.cast(), pitch, rows);
        }
        End::Device(at, pitch, rows) => {
            copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
            (copy.srcDevice, copy.srcPitch, copy.srcHeight) = (at, pitch, rows);
        }
        End::Array(array, [x, y, z]) => {
            copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
            copy.srcArray = array as sys::CUarray;
            (copy.srcXInBytes, copy.srcY, copy.srcZ) = (x, y, z);
        }
    }
    (copy.WidthInBytes, copy.Height, copy.Depth) = (width, height, depth);
    copy
}

fn zeroed_copy() -> sys::CUDA_MEMCPY3D {
    let mut copy = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
    // SAFETY: the enumerations, which have no 0, get values before the structure is one.
    unsafe {
        let at = copy.as_mut_ptr();
        (&raw mut (*at).srcMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_HOST);
        (&raw mut (*at).dstMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_HOST);
        copy.assume_init()
    }
}

/// Reads a whole array of `size` bytes, rows and slices.
fn read(array: usize, size: [usize; 3]) -> Vec<u8> {
    let mut found = vec![0; size.iter().product()];
    let to = End::Host(found.as_mut_ptr(), size[0], size[1]);
    ok!(cuMemcpy3D_v2(&copy(to, End::Array(array, [0; 3]), size)));
    found
}

fn write(array: usize, size: [usize; 3], content: &[u8]) {
    let from = End::Host(content.as_ptr().cast_mut(), size[0], size[1]);
    ok!(cuMemcpy3D_v2(&copy(End::Array(array, [0; 3]), from, size)));
}

/// What a box of an array of bytes is.
fn boxed(
    all: &[u8],
    [row, rows, _]: [usize; 3],
    [x, y, z]: [usize; 3],
    size: [usize; 3],
) -> Vec<u8> {
    let mut found = Vec::new();
    for slice in 0..size[2] {
        for line in 0..size[1] {
            let at = ((z + slice) * rows + y + line) * row + x;
            found.extend_from_slice(&all[at..at + size[0]]);
        }
    }
    found
}

#[test]
fn arrays_describe_themselves_and_end_once() {
    causeway_cuda_tests::library();
    let given = sys::CUDA_ARRAY_DESCRIPTOR {
        Width: 100,
        Height: 30,
        Format: sys::CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 2,
    };
    let mut made = 0;
    ok!(cuArrayCreate_v2(&raw mut made, &raw const given));
    let mut found = described([0; 3], 1, 1, 9);
    ok!(cuArray3DGetDescriptor_v2(&raw mut found, made));
    assert_eq!((found.Width, found.Height, found.Depth), (100, 30, 0));
    assert_eq!(
        (found.Format as u32, found.NumChannels, found.Flags),
        (0x20, 2, 0)
    );
    let mut flat = given;
    ok!(cuArrayGetDescriptor_v2(&raw mut flat, made));
    assert_eq!((flat.Width, flat.Height, flat.NumChannels), (100, 30, 2));
    assert!(read(made, [800, 30, 1]).iter().all(|byte| *byte == 0));
    ok!(cuArrayDestroy(made));
    refused!(INVALID_HANDLE, cuArrayDestroy(made));
    refused!(INVALID_HANDLE, cuArrayDestroy(0));
    refused!(INVALID_HANDLE, cuArrayDestroy(usize::MAX));
    refused!(INVALID_HANDLE, cuArrayGetDescriptor_v2(&raw mut flat, made));
    for size in [[0, 1, 0], [1 << 20, 0, 0], [16, 0, 16], [1, usize::MAX, 0]] {
        refused!(
            INVALID_VALUE,
            cuArray3DCreate_v2(&raw mut made, &described(size, 1, 1, 0))
        );
    }
    refused!(
        INVALID_VALUE,
        cuArray3DCreate_v2(&raw mut made, &described([1, 0, 0], 1, 3, 0))
    );
    refused!(
        INVALID_VALUE,
        cuArray3DCreate_v2(&raw mut made, std::ptr::null())
    );
    refused!(
        NOT_SUPPORTED,
        cuArray3DCreate_v2(&raw mut made, &described([1, 1, 0], 1, 1, 0x40))
    );
}

#[test]
fn boxes_go_between_an_array_and_all_memory() {
    causeway_cuda_tests::library();
    let size = [96, 20, 7];
    let array = array([24, 20, 7], 1, 4, 0);
    let all = pattern(size.iter().product(), 0);
    write(array, size, &all);
    assert_eq!(read(array, size), all);

    let (origin, part) = ([8, 3, 2], [48, 11, 4]);
    let wanted = boxed(&all, size, origin, part);
    let from = End::Array(array, origin);
    // Memory of the process, with gaps.
    let mut host = vec![0xee; 64 * 13 * 4];
    ok!(cuMemcpy3D_v2(&copy(
        End::Host(host.as_mut_ptr(), 64, 13),
        from,
        part
    )));
    assert_eq!(boxed(&host, [64, 13, 4], [0; 3], part), wanted);
    assert_eq!(host[48..64], [0xee; 16], "gaps stay");
    // Device memory, and slices whose distance is no number of rows.
    let device = holding(&vec![0xee; 64 * 13 * 4]);
    ok!(cuMemcpy3D_v2(&copy(
        End::Device(device, 64, 13),
        from,
        part
    )));
    let found = content(device, 64 * 13 * 4);
    assert_eq!(boxed(&found, [64, 13, 4], [0; 3], part), wanted);
    // Page-locked memory.
    let mut locked = std::ptr::null_mut();
    ok!(cuMemAllocHost_v2(&raw mut locked, 64 * 13 * 4));
    ok!(cuMemcpy3D_v2(&copy(End::Host(locked, 64, 13), from, part)));
    // SAFETY: allocated above.
    let found = unsafe { std::slice::from_raw_parts(locked, 64 * 13 * 4) };
    assert_eq!(boxed(found, [64, 13, 4], [0; 3], part), wanted);

    // And back into another place.
    let mut expected = all.clone();
    let to = [20, 5, 1];
    for (at, row) in wanted.chunks(48).enumerate() {
        let (slice, line) = (at / 11, at % 11);
        let start = ((to[2] + slice) * 20 + to[1] + line) * 96 + to[0];
        expected[start..start + 48].copy_from_slice(row);
    }
    for source in [
        End::Host(host.as_mut_ptr(), 64, 13),
        End::Device(device, 64, 13),
        End::Host(locked, 64, 13),
        End::Array(array, origin),
    ] {
        let other = self::array([24, 20, 7], 1, 4, 0);
        write(other, size, &all);
        ok!(cuMemcpy3D_v2(&copy(End::Array(other, to), source, part)));
        assert_eq!(read(other, size), expected);
        ok!(cuArrayDestroy(other));
    }
    ok!(cuMemFreeHost(locked));
    ok!(cuMemFree_v2(device));
    ok!(cuArrayDestroy(array));
}

#[test]
fn large_arrays_go_in_pieces() {
    causeway_cuda_tests::library();
    // More than the pieces of staging memory, and rows that are longer than one.
    for (elements, format, channels, size) in [
        ([1 << 17, 9, 0], 0x20, 4, [2 << 20, 9, 1]),
        ([300, 3000, 5], 1, 1, [300, 3000, 5]),
        ([4, 60_000, 0], 1, 4, [16, 60_000, 1]),
    ] {
        let [first, second] = [(); 2].map(|()| array(elements, format, channels, 0));
        let all = pattern(size.iter().product(), 3);
        write(first, size, &all);
        ok!(cuMemcpy3D_v2(&copy(
            End::Array(second, [0; 3]),
            End::Array(first, [0; 3]),
            size
        )));
        assert!(read(second, size) == all);
        ok!(cuArrayDestroy(first));
        ok!(cuArrayDestroy(second));
    }
}

#[test]
fn bytes_of_one_row_are_copied_by_their_offset() {
    causeway_cuda_tests::library();
    let [array, other] = [(); 2].map(|()| self::array([512, 0, 0], 2, 1, 0));
    let all = pattern(1024, 9);
    ok!(cuMemcpyHtoA_v2(array, 0, all.as_ptr(), 1024));
    let mut found = vec![0; 100];
    ok!(cuMemcpyAtoH_v2(found.as_mut_ptr(), array, 200, 100));
    assert_eq!(found, all[200..300]);
    let device = holding(&pattern(64, 77));
    ok!(cuMemcpyDtoA_v2(array, 500, device, 64));
    ok!(cuMemcpyAtoD_v2(device, array, 498, 60));
    assert_eq!(
        content(device, 60),
        [&all[498..500], &pattern(58, 77)].concat()
    );
    ok!(cuMemcpyAtoA_v2(other, 10, array, 500, 64));
    ok!(cuMemcpyAtoH_v2(found.as_mut_ptr(), other, 10, 64));
    assert_eq!(found[..64], pattern(64, 77));
    let mut stream = 0;
    ok!(cuStreamCreate(&raw mut stream, 1));
    ok!(cuMemcpyHtoAAsync_v2(other, 0, all.as_ptr(), 100, stream));
    ok!(cuMemcpyAtoHAsync_v2(
        found.as_mut_ptr(),
        other,
        0,
        100,
        stream
    ));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, all[..100]);
    ok!(cuStreamDestroy_v2(stream));
    refused!(
        INVALID_VALUE,
        cuMemcpyHtoA_v2(array, 1000, all.as_ptr(), 26)
    );
    refused!(INVALID_VALUE, cuMemcpyHtoA_v2(array, 1, all.as_ptr(), 2));
    refused!(
        INVALID_VALUE,
        cuMemcpyHtoA_v2(array, usize::MAX - 1, all.as_ptr(), 2)
    );
    refused!(
        INVALID_VALUE,
        cuMemcpyDtoA_v2(array, 0, all.as_ptr() as u64, 2)
    );
    refused!(INVALID_VALUE, cuMemcpyHtoA_v2(0, 0, all.as_ptr(), 2));
    ok!(cuArrayDestroy(other));
    refused!(INVALID_VALUE, cuMemcpyHtoA_v2(other, 0, all.as_ptr(), 2));
    refused!(INVALID_VALUE, cuMemcpyAtoA_v2(array, 0, other, 0, 2));
    let wide = self::array([512, 0, 0], 3, 1, 0);
    refused!(INVALID_VALUE, cuMemcpyAtoA_v2(array, 0, wide, 0, 8));
    ok!(cuArrayDestroy(wide));
    ok!(cuArrayDestroy(array));
    ok!(cuMemFree_v2(device));
}

#[test]
fn wrong_boxes_are_refused() {
    causeway_cuda_tests::library();
    let array = self::array([24, 20, 7], 1, 4, 0);
    let mut host = vec![0; 96 * 20 * 7];
    let to = End::Host(host.as_mut_ptr(), 96, 20);
    for (origin, size) in [
        ([8, 0, 0], [92, 1, 1]),
        ([0, 1, 0], [4, 20, 1]),
        ([0, 0, 7], [4, 1, 1]),
        ([2, 0, 0], [4, 1, 1]),
        ([0, 0, 0], [6, 1, 1]),
        ([usize::MAX - 3, 0, 0], [4, 1, 1]),
    ] {
        refused!(
            INVALID_VALUE,
            cuMemcpy3D_v2(&copy(to, End::Array(array, origin), size))
        );
    }
    let mut level = copy(to, End::Array(array, [0; 3]), [4, 1, 1]);
    level.srcLOD = 1;
    refused!(INVALID_VALUE, cuMemcpy3D_v2(&raw const level));
    let overlapping = End::Host(host.as_mut_ptr(), 8, 20);
    let wrong = copy(overlapping, End::Array(array, [0; 3]), [16, 2, 1]);
    refused!(INVALID_VALUE, cuMemcpy3D_v2(&raw const wrong));
    let mut flat: sys::CUDA_MEMCPY2D = {
        let mut flat = std::mem::MaybeUninit::<sys::CUDA_MEMCPY2D>::zeroed();
        // SAFETY: as for copies in three dimensions.
        unsafe {
            let at = flat.as_mut_ptr();
            (&raw mut (*at).srcMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_ARRAY);
            (&raw mut (*at).dstMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_HOST);
            flat.assume_init()
        }
    };
    (flat.srcArray, flat.dstHost) = (array as sys::CUarray, host.as_mut_ptr().cast());
    (flat.WidthInBytes, flat.Height, flat.dstPitch) = (96, 20, 96);
    ok!(cuMemcpy2D_v2(&raw const flat));
    flat.Height = 21;
    refused!(INVALID_VALUE, cuMemcpy2D_v2(&raw const flat));
    ok!(cuArrayDestroy(array));
}

#[test]
fn an_array_can_be_destroyed_while_copies_are_under_way() {
    causeway_cuda_tests::library();
    let mut stream = 0;
    ok!(cuStreamCreate(&raw mut stream, 1));
    let size = [4096, 256, 1];
    let device = holding(&pattern(4096 * 256, 1));
    let back = holding(&vec![0; 4096 * 256]);
    for _ in 0..20 {
        let array = self::array([1024, 256, 0], 0x20, 1, 0);
        let (from, to) = (End::Device(device, 4096, 256), End::Device(back, 4096, 256));
        let whole = End::Array(array, [0; 3]);
        for _ in 0..8 {
            ok!(cuMemcpy3DAsync_v2(&copy(whole, from, size), stream));
        }
        ok!(cuMemcpy3DAsync_v2(&copy(to, whole, size), stream));
        ok!(cuArrayDestroy(array));
    }
    ok!(cuStreamSynchronize(stream));
    assert!(content(back, 4096 * 256) == pattern(4096 * 256, 1));
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemFree_v2(device));
    ok!(cuMemFree_v2(back));
}

#[test]
fn graphs_copy_arrays() {
    causeway_cuda_tests::library();
    let (mut stream, mut graph, mut executable) = (0, 0, 0);
    ok!(cuStreamCreate(&raw mut stream, 1));
    let size = [128, 40, 3];
    let bytes: usize = size.iter().product();
    let [first, second] = [(); 2].map(|()| array([32, 40, 3], 1, 4, 0));
    let device = holding(&pattern(bytes, 1));
    let mut host = vec![0_u8; bytes];
    let mut found = vec![0_u8; bytes];
    let arrays = (End::Array(first, [0; 3]), End::Array(second, [0; 3]));
    // Memory of the device, arrays, memory of the process.
    ok!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    ok!(cuMemcpy3DAsync_v2(
        &copy(arrays.0, End::Device(device, 128, 40), size),
        stream
    ));
    ok!(cuMemcpy3DAsync_v2(&copy(arrays.1, arrays.0, size), stream));
    let to = End::Host(found.as_mut_ptr(), 128, 40);
    ok!(cuMemcpy3DAsync_v2(&copy(to, arrays.1, size), stream));
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    let (mut nodes, mut count) = ([0; 3], 3);
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    assert_eq!(count, 3);
    let mut given = zeroed_copy();
    ok!(cuGraphMemcpyNodeGetParams(nodes[1], &raw mut given));
    assert_eq!(
        (given.dstArray as usize, given.srcArray as usize),
        (second, first)
    );
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, pattern(bytes, 1));
    ok!(cuMemcpyHtoD_v2(
        device,
        pattern(bytes, 2).as_ptr().cast(),
        bytes
    ));
    // The arrays stay as long as the graph has them.
    ok!(cuArrayDestroy(first));
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, pattern(bytes, 2));
    ok!(cuGraphExecDestroy(executable));
    ok!(cuGraphDestroy(graph));
    // A node of its own, from memory of the process.
    host.copy_from_slice(&pattern(bytes, 3));
    ok!(cuGraphCreate(&raw mut graph, 0));
    let mut node = 0;
    let copied = copy(arrays.1, End::Host(host.as_mut_ptr(), 128, 40), size);
    ok!(cuGraphAddMemcpyNode(
        &raw mut node,
        graph,
        std::ptr::null(),
        0,
        &raw const copied,
        0
    ));
    let stale = copy(arrays.0, End::Host(host.as_mut_ptr(), 128, 40), size);
    refused!(
        INVALID_VALUE,
        cuGraphAddMemcpyNode(
            &raw mut node,
            graph,
            std::ptr::null(),
            0,
            &raw const stale,
            0
        )
    );
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(read(second, size), pattern(bytes, 3));
    ok!(cuGraphExecDestroy(executable));
    ok!(cuGraphDestroy(graph));
    ok!(cuArrayDestroy(second));
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemFree_v2(device));
}

fn of_array(array: usize) -> sys::CUDA_RESOURCE_DESC {
    let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
    resource.res.array.hArray = array as sys::CUarray;
    resource
}

#[test]
fn textures_and_surfaces_are_described_and_end() {
    causeway_cuda_tests::library();
    let array = self::array([32, 16, 0], 0x20, 1, 2);
    let plain = self::array([32, 16, 0], 1, 1, 0);
    let (mut texture, mut surface) = (0, 0);
    let mut sampling: sys::CUDA_TEXTURE_DESC = zeroed();
    sampling.filterMode = sys::CUfilter_mode::CU_TR_FILTER_MODE_LINEAR;
    sampling.borderColor = [1.0, 2.0, 3.0, 4.0];
    let none = std::ptr::null();
    ok!(cuTexObjectCreate(
        &raw mut texture,
        &of_array(array),
        &raw const sampling,
        none
    ));
    ok!(cuSurfObjectCreate(&raw mut surface, &of_array(array)));
    let mut resource = of_array(0);
    ok!(cuTexObjectGetResourceDesc(&raw mut resource, texture));
    // SAFETY: it is of an array.
    assert_eq!(unsafe { resource.res.array.hArray } as usize, array);
    resource = of_array(0);
    ok!(cuSurfObjectGetResourceDesc(&raw mut resource, surface));
    // SAFETY: as above.
    assert_eq!(unsafe { resource.res.array.hArray } as usize, array);
    let mut found: sys::CUDA_TEXTURE_DESC = zeroed();
    ok!(cuTexObjectGetTextureDesc(&raw mut found, texture));
    assert_eq!(found.borderColor, [1.0, 2.0, 3.0, 4.0]);
    let mut view: sys::CUDA_RESOURCE_VIEW_DESC = zeroed();
    refused!(
        INVALID_VALUE,
        cuTexObjectGetResourceViewDesc(&raw mut view, texture)
    );
    ok!(cuTexObjectDestroy(texture));
    refused!(INVALID_VALUE, cuTexObjectDestroy(texture));
    refused!(
        INVALID_VALUE,
        cuTexObjectGetTextureDesc(&raw mut found, texture)
    );
    ok!(cuSurfObjectDestroy(surface));
    refused!(INVALID_VALUE, cuSurfObjectDestroy(surface));
    refused!(
        INVALID_VALUE,
        cuSurfObjectCreate(&raw mut surface, &of_array(plain))
    );
    refused!(
        INVALID_VALUE,
        cuSurfObjectCreate(&raw mut surface, &of_array(77))
    );
    // Integers that are read as such.
    sampling.flags = 1;
    refused!(
        INVALID_VALUE,
        cuTexObjectCreate(
            &raw mut texture,
            &of_array(plain),
            &raw const sampling,
            none
        )
    );
    refused!(
        NOT_SUPPORTED,
        cuTexObjectCreate(
            &raw mut texture,
            &of_array(array),
            &raw const sampling,
            &raw const view
        )
    );
    ok!(cuArrayDestroy(array));
    ok!(cuArrayDestroy(plain));
    refused!(
        INVALID_VALUE,
        cuTexObjectCreate(
            &raw mut texture,
            &of_array(array),
            &raw const sampling,
            none
        )
    );
}

#[test]
fn textures_of_memory_are_of_the_devices() {
    causeway_cuda_tests::library();
    let mut most = 0;
    ok!(cuDeviceGetTexture1DLinearMaxWidth(
        &raw mut most,
        0x20,
        4,
        0
    ));
    assert_eq!(most, 1 << 28);
    refused!(
        INVALID_VALUE,
        cuDeviceGetTexture1DLinearMaxWidth(&raw mut most, 0x20, 3, 0)
    );
    let small = holding(&[1; 4]);
    let device = holding(&pattern(1 << 16, 0));
    assert_eq!(device % 512, 0, "the alignment of textures");
    let sampling: sys::CUDA_TEXTURE_DESC = zeroed();
    let make = |resource: &sys::CUDA_RESOURCE_DESC| {
        let mut texture = 0;
        // SAFETY: pointers are valid for the calls.
        unsafe {
            let made = cuTexObjectCreate(
                &raw mut texture,
                resource,
                &raw const sampling,
                std::ptr::null(),
            );
            match made {
                0 => cuTexObjectDestroy(texture),
                code => code,
            }
        }
    };
    let linear = |at: u64, bytes: usize| {
        let mut resource = of_array(0);
        resource.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
        resource.res.linear.devPtr = at;
        resource.res.linear.format = sys::CUarray_format::CU_AD_FORMAT_FLOAT;
        resource.res.linear.numChannels = 4;
        resource.res.linear.sizeInBytes = bytes;
        resource
    };
    assert_eq!(make(&linear(device, 1 << 16)), 0);
    assert_eq!(
        make(&linear(device, (1 << 16) + 16)),
        INVALID_VALUE,
        "beyond the memory"
    );
    assert_eq!(make(&linear(device + 16, 64)), INVALID_VALUE, "alignment");
    assert_eq!(make(&linear(device, 0)), INVALID_VALUE);
    assert_eq!(make(&linear(0, 64)), INVALID_VALUE);
    let own = [0_u8; 2048];
    assert_eq!(
        make(&linear((own.as_ptr() as u64).next_multiple_of(512), 64)),
        INVALID_VALUE
    );
    let rows = |pitch: usize, height: usize| {
        let mut resource = of_array(0);
        resource.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
        resource.res.pitch2D.devPtr = device;
        resource.res.pitch2D.format = sys::CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;
        resource.res.pitch2D.numChannels = 1;
        resource.res.pitch2D.width = 500;
        resource.res.pitch2D.height = height;
        resource.res.pitch2D.pitchInBytes = pitch;
        resource
    };
    assert_eq!(make(&rows(512, 128)), 0);
    assert_eq!(make(&rows(512, 129)), INVALID_VALUE, "beyond the memory");
    assert_eq!(make(&rows(500, 16)), INVALID_VALUE, "alignment");
    assert_eq!(make(&rows(480, 16)), INVALID_VALUE, "rows overlap");
    let mut mipmapped = of_array(0);
    mipmapped.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    assert_eq!(make(&mipmapped), NOT_SUPPORTED);
    ok!(cuMemFree_v2(device));
    ok!(cuMemFree_v2(small));
}

#[test]
fn a_context_ends_its_arrays_and_textures() {
    causeway_cuda_tests::library();
    let (mut context, mut texture) = (0, 0);
    ok!(cuCtxCreate_v2(&raw mut context, 0, 0));
    let array = self::array([32, 16, 0], 0x20, 1, 2);
    let sampling: sys::CUDA_TEXTURE_DESC = zeroed();
    let none = std::ptr::null();
    ok!(cuTexObjectCreate(
        &raw mut texture,
        &of_array(array),
        &raw const sampling,
        none
    ));
    ok!(cuCtxDestroy_v2(context));
    causeway_cuda_tests::library();
    refused!(INVALID_HANDLE, cuArrayDestroy(array));
    refused!(INVALID_VALUE, cuTexObjectDestroy(texture));
}

/// Writes twice the elements of a texture of 8 x 4 numbers to a surface.
const KERNEL: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry doubled(.param .u64 texture, .param .u64 surface)
{
    .reg .u32 %x, %y, %at;
    .reg .u64 %from, %to;
    .reg .f32 %u, %v, %r, %g, %b, %a;
    .reg .b32 %bits;
    ld.param.u64 %from, [texture];
    ld.param.u64 %to, [surface];
    mov.u32 %x, %tid.x;
    mov.u32 %y, %tid.y;
    cvt.rn.f32.u32 %u, %x;
    cvt.rn.f32.u32 %v, %y;
    add.f32 %u, %u, 0f3F000000;
    add.f32 %v, %v, 0f3F000000;
    tex.2d.v4.f32.f32 {%r, %g, %b, %a}, [%from, {%u, %v}];
    add.f32 %r, %r, %r;
    mov.b32 %bits, %r;
    shl.b32 %at, %x, 2;
    sust.b.2d.b32.trap [%to, {%at, %y}], {%bits};
    ret;
}
\0";

#[test]
fn kernels_read_textures_and_write_surfaces() {
    causeway_cuda_tests::library();
    let [from, to] = [0, 2].map(|flags| array([8, 4, 0], 0x20, 1, flags));
    let numbers: Vec<f32> = (0..32).map(|number| number as f32 * 1.5).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    write(from, [32, 4, 1], &bytes);
    let (mut texture, mut surface) = (0_u64, 0_u64);
    let sampling: sys::CUDA_TEXTURE_DESC = zeroed();
    let none = std::ptr::null();
    ok!(cuTexObjectCreate(
        &raw mut texture,
        &of_array(from),
        &raw const sampling,
        none
    ));
    ok!(cuSurfObjectCreate(&raw mut surface, &of_array(to)));
    let (mut module, mut kernel) = (0, 0);
    ok!(cuModuleLoadData(&raw mut module, KERNEL.as_ptr()));
    ok!(cuModuleGetFunction(
        &raw mut kernel,
        module,
        c"doubled".as_ptr().cast()
    ));
    let parameters = [(&raw const texture).cast(), (&raw const surface).cast()];
    ok!(cuLaunchKernel(
        kernel,
        1,
        1,
        1,
        8,
        4,
        1,
        0,
        0,
        parameters.as_ptr(),
        0
    ));
    // These wait for the kernel.
    ok!(cuTexObjectDestroy(texture));
    ok!(cuSurfObjectDestroy(surface));
    let found = read(to, [32, 4, 1]);
    let found: Vec<f32> = found
        .chunks(4)
        .map(|it| f32::from_le_bytes(it.try_into().expect("four bytes")))
        .collect();
    let wanted: Vec<f32> = numbers.iter().map(|it| it * 2.0).collect();
    assert_eq!(found, wanted);
    ok!(cuModuleUnload(module));
    ok!(cuArrayDestroy(from));
    ok!(cuArrayDestroy(to));
}
