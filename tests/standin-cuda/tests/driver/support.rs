//! Child processes, and short forms of what every test does.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::process::{Command, Output};
use std::ptr::null_mut;

pub use cudarc::driver::sys;

pub const MIB: usize = 1 << 20;
pub const GRANULE: usize = 2 * MIB;

/// Set in the child that is to run a test's body.
const CHILD: &str = "STANDIN_TEST_CHILD";

/// Whether this is the child. The parent runs the test of that name again, in a process with these
/// settings.
pub fn is_child(name: &str, settings: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = run_child(name, settings);
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Runs a test in a child with a folder of its own for accounts.
pub fn run_child(name: &str, settings: &[(&str, &str)]) -> Output {
    let folder = format!("standin-{}-{}", std::process::id(), name.replace(':', "-"));
    let folder = std::env::temp_dir().join(folder);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", causeway_standin_cuda::directory())
        .env("CAUSEWAY_STANDIN_STATE", &folder)
        .env(CHILD, "1")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(folder);
    output
}

/// Calls, and wants success.
#[macro_export]
macro_rules! ok {
    ($call:expr) => {{
        let code = unsafe { $call } as u32;
        assert_eq!(code, 0, "{}", stringify!($call));
    }};
}

/// Calls, and wants an error.
#[macro_export]
macro_rules! refused {
    ($code:expr, $call:expr) => {{
        let code = unsafe { $call } as u32;
        assert_eq!(code, $code, "{}", stringify!($call));
    }};
}

/// What a call puts where its first argument points.
pub fn made<T>(call: impl FnOnce(*mut T) -> sys::CUresult) -> T {
    let mut value = MaybeUninit::uninit();
    let code = call(value.as_mut_ptr()) as u32;
    assert_eq!(code, 0);
    unsafe { value.assume_init() }
}

/// An initialized driver with a context of device 0.
pub fn context() -> sys::CUcontext {
    ok!(sys::cuInit(0));
    made(|into| unsafe { sys::cuCtxCreate_v4(into, null_mut(), 0, 0) })
}

pub fn stream() -> sys::CUstream {
    made(|into| unsafe { sys::cuStreamCreate(into, 1) })
}

/// Pinned memory on a device, exportable.
pub fn properties() -> sys::CUmemAllocationProp {
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes =
        sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties
}

pub fn create(bytes: usize) -> u64 {
    made(|into| unsafe { sys::cuMemCreate(into, bytes, &properties(), 0) })
}

pub fn reserve(bytes: usize) -> u64 {
    made(|into| unsafe { sys::cuMemAddressReserve(into, bytes, 0, 0, 0) })
}

pub fn access(flags: sys::CUmemAccess_flags) -> sys::CUmemAccessDesc {
    sys::CUmemAccessDesc {
        location: properties().location,
        flags,
    }
}

pub const READ_WRITE: sys::CUmemAccess_flags =
    sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
pub const READ: sys::CUmemAccess_flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;
pub const NONE: sys::CUmemAccess_flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;

/// Memory that is mapped and can be used.
pub fn mapped(bytes: usize) -> (u64, u64) {
    let (handle, address) = (create(bytes), reserve(bytes));
    ok!(sys::cuMemMap(address, bytes, 0, handle, 0));
    ok!(sys::cuMemSetAccess(address, bytes, &access(READ_WRITE), 1));
    (handle, address)
}

pub fn allocate(bytes: usize) -> u64 {
    made(|into| unsafe { sys::cuMemAlloc_v2(into, bytes) })
}

pub fn upload(address: u64, words: &[u32]) {
    let from = words.as_ptr().cast();
    ok!(sys::cuMemcpyHtoD_v2(address, from, size_of_val(words)));
}

pub fn download(address: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0; count];
    ok!(sys::cuMemcpyDtoH_v2(
        words.as_mut_ptr().cast(),
        address,
        4 * count
    ));
    words
}

pub fn module(ptx: &str) -> sys::CUmodule {
    let text = CString::new(ptx).unwrap();
    made(|into| unsafe { sys::cuModuleLoadData(into, text.as_ptr().cast()) })
}

pub fn function(module: sys::CUmodule, name: &str) -> sys::CUfunction {
    let name = CString::new(name).unwrap();
    made(|into| unsafe { sys::cuModuleGetFunction(into, module, name.as_ptr()) })
}

/// Launches with parameters of 64 bits each.
pub fn launch(
    function: sys::CUfunction,
    (blocks, threads): (u32, u32),
    stream: sys::CUstream,
    parameters: &mut [u64],
) -> u32 {
    let mut pointers: Vec<_> = parameters
        .iter_mut()
        .map(|p| std::ptr::from_mut(p).cast())
        .collect();
    let pointers = pointers.as_mut_ptr();
    let code = unsafe {
        sys::cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream,
            pointers,
            null_mut(),
        )
    };
    code as u32
}

/// A module of small kernels: `add` (words of a buffer become larger by 1), `ids` (`%smid` of each
/// block), a counter.
pub const PTX: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry add(.param .u64 words)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [words];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    ld.u32 %r2, [%d1];
    add.u32 %r2, %r2, 1;
    st.u32 [%d1], %r2;
    ret;
}
.visible .entry ids(.param .u64 words)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [words];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    mov.u32 %r2, %smid;
    st.u32 [%d1], %r2;
    ret;
}
.visible .entry count()
{
    .reg .b32 %r<2>; .reg .b64 %d<2>;
    mov.u64 %d1, counter;
    atom.global.add.u32 %r1, [%d1], 1;
    ret;
}
.visible .entry stop()
{
    trap;
    ret;
}
";
