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

// After the macros, which they use.
mod copies;
mod graphs;
mod lives;
mod textures;

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

fn of_array(array: usize) -> sys::CUDA_RESOURCE_DESC {
    let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
    resource.res.array.hArray = array as sys::CUarray;
    resource
}
