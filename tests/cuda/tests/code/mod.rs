//! Functions of the driver API that load and launch code, and the code that the tests use.

#![allow(dead_code, reason = "no test uses all of this")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

pub const INVALID_VALUE: u32 = 1;
pub const INVALID_IMAGE: u32 = 200;
pub const NO_BINARY_FOR_GPU: u32 = 209;
pub const INVALID_PTX: u32 = 218;
pub const UNSUPPORTED_PTX_VERSION: u32 = 222;
pub const FILE_NOT_FOUND: u32 = 301;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
pub const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
pub const NOT_PERMITTED: u32 = 800;
pub const NOT_SUPPORTED: u32 = 801;
pub const STREAM_CAPTURE_INVALIDATED: u32 = 901;
pub const INVALID_CLUSTER_SIZE: u32 = 912;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        mod raw {
            use super::{c_char, c_void};
            unsafe extern "C" { $(pub fn $name($($argument: $type),*) -> u32;)* }
        }
        $(
            /// Calls the function of this name. Pointers are valid or null in all tests.
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "cuda.h's")]
            pub fn $name($($argument: $type),*) -> u32 {
                // SAFETY: tests pass pointers to their own variables of the size that cuda.h says.
                unsafe { raw::$name($($argument),*) }
            }
        )*
    };
}

functions! {
    cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32);
    cuCtxDestroy_v2(context: usize);
    cuCtxGetCurrent(context: *mut usize);
    cuCtxSetCurrent(context: usize);
    cuCtxSynchronize();
    cuMemAlloc_v2(address: *mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    cuModuleLoad(module: *mut usize, file: *const c_char);
    cuModuleLoadData(module: *mut usize, image: *const c_void);
    cuModuleLoadDataEx(module: *mut usize, image: *const c_void, count: u32, options: *const u32,
        values: *mut usize);
    cuModuleLoadFatBinary(module: *mut usize, image: *const c_void);
    cuModuleUnload(module: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    cuModuleGetFunctionCount(count: *mut u32, module: usize);
    cuModuleEnumerateFunctions(functions: *mut usize, room: u32, module: usize);
    cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: usize, name: *const c_char);
    cuModuleGetLoadingMode(mode: *mut u32);
    cuLibraryLoadData(library: *mut usize, image: *const c_void, options: *const u32,
        values: *mut usize, count: u32, more: *const u32, more_values: *const usize,
        more_count: u32);
    cuLibraryUnload(library: usize);
    cuLibraryGetKernel(kernel: *mut usize, library: usize, name: *const c_char);
    cuLibraryGetKernelCount(count: *mut u32, library: usize);
    cuLibraryEnumerateKernels(kernels: *mut usize, room: u32, library: usize);
    cuLibraryGetModule(module: *mut usize, library: usize);
    cuKernelGetFunction(function: *mut usize, kernel: usize);
    cuKernelGetLibrary(library: *mut usize, kernel: usize);
    cuKernelGetName(name: *mut *const c_char, kernel: usize);
    cuFuncGetName(name: *mut *const c_char, function: usize);
    cuFuncGetModule(module: *mut usize, function: usize);
    cuFuncGetParamInfo(function: usize, index: usize, offset: *mut usize, bytes: *mut usize);
    cuKernelGetParamInfo(kernel: usize, index: usize, offset: *mut usize, bytes: *mut usize);
    cuFuncGetAttribute(value: *mut i32, attribute: u32, function: usize);
    cuFuncSetAttribute(function: usize, attribute: u32, value: i32);
    cuLinkCreate_v2(count: u32, options: *const u32, values: *mut usize, linker: *mut usize);
    cuLinkAddData_v2(linker: usize, kind: u32, data: *const c_void, bytes: usize,
        name: *const c_char, count: u32, options: *const u32, values: *mut usize);
    cuLinkComplete(linker: usize, image: *mut *const c_void, bytes: *mut usize);
    cuLinkDestroy(linker: usize);
    cuLaunchKernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
        block_y: u32, block_z: u32, shared: u32, stream: usize, parameters: *const *const c_void,
        extra: *const usize);
    cuLaunchCooperativeKernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
        block_y: u32, block_z: u32, shared: u32, stream: usize, parameters: *const *const c_void);
    cuLaunchKernelEx(configuration: *const c_void, function: usize,
        parameters: *const *const c_void, extra: *const usize);
    cuStreamCreate(stream: *mut usize, flags: u32);
    cuStreamSynchronize(stream: usize);
    cuStreamBeginCapture_v2(stream: usize, mode: u32);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64);
    cuGraphLaunch(executable: usize, stream: usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut i32, function: usize, threads: i32,
        shared: usize);
    cuOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, function: usize, blocks: i32,
        threads: i32);
    cuOccupancyMaxPotentialBlockSize(grid: *mut i32, block: *mut i32, function: usize,
        shared_of: *const c_void, shared: usize, threads_max: i32);
}

/// What PTX text begins with.
pub const HEAD: &str = ".version 8.1\n.target sm_70\n.address_size 64\n";

/// `add` stores `a[i] + b[i]` to `c[i]` for `n` elements of type `f32`; `bounded` has blocks of 64
/// threads at most, and a KiB of shared memory; `required` has blocks of 32 times 2 threads.
pub const KERNELS: &str = "
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [b];
    ld.param.u64 %d3, [c];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %d4, %r5, 4;
    add.s64 %d5, %d1, %d4;
    add.s64 %d6, %d2, %d4;
    add.s64 %d7, %d3, %d4;
    ld.global.f32 %f1, [%d5];
    ld.global.f32 %f2, [%d6];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%d7], %f3;
DONE:
    ret;
}
.visible .entry bounded() .maxntid 64, 1, 1
{
    .shared .align 4 .b8 room[1024];
    .reg .b32 %r<2>;
    mov.u32 %r1, 1;
    st.shared.u32 [room], %r1;
    ret;
}
.visible .entry required() .reqntid 32, 2, 1
{
    ret;
}
";

/// Returns a module's text, with its NUL.
pub fn text(body: &str) -> CString {
    CString::new(format!("{HEAD}{body}")).unwrap()
}

/// Loads a module. Returns the result and the handle.
pub fn load(text: &CStr) -> (u32, usize) {
    let mut module = 0;
    let result = cuModuleLoadData(&raw mut module, text.as_ptr().cast());
    (result, module)
}

/// Loads a module that is good.
pub fn module(body: &str) -> usize {
    let (result, module) = load(&text(body));
    assert_eq!(result, 0, "{body}");
    module
}

/// Looks a function up.
pub fn function(module: usize, name: &CStr) -> usize {
    let mut function = 0;
    let result = cuModuleGetFunction(&raw mut function, module, name.as_ptr());
    assert_eq!(result, 0, "{name:?}");
    function
}

/// Launches with one pointer for each parameter.
pub fn launch(function: usize, grid: [u32; 3], block: [u32; 3], pointers: &[*const c_void]) -> u32 {
    let list = if pointers.is_empty() {
        null()
    } else {
        pointers.as_ptr()
    };
    let ([x, y, z], [u, v, w]) = (grid, block);
    cuLaunchKernel(function, x, y, z, u, v, w, 0, 0, list, null())
}

/// No pointer, for results that are not wanted.
pub const fn nothing<T>() -> *mut T {
    null_mut()
}
