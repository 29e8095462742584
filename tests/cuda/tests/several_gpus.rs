//! Several devices: each has contexts, memory, streams and code of its own.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::{c_char, c_void};
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_cuda_tests::library_on;

/// Mode of a capture that forbids other threads no calls: other tests are under way.
const RELAXED: u32 = 2;
const INVALID_VALUE: u32 = 1;
const INVALID_DEVICE: u32 = 101;
const INVALID_CONTEXT: u32 = 201;
const PEER_ACCESS_UNSUPPORTED: u32 = 217;
const INVALID_HANDLE: u32 = 400;
const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
const PEER_ACCESS_NOT_ENABLED: u32 = 705;

/// Adds 1 to each of 32 words.
const CODE: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry increment(.param .u64 words)
{
    .reg .u64 %a<4>;
    .reg .u32 %r<3>;
    ld.param.u64 %a0, [words];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %a1, %r0, 4;
    add.u64 %a2, %a0, %a1;
    ld.global.u32 %r1, [%a2];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%a2], %r1;
    ret;
}
\0";

unsafe extern "C" {
    fn cuDeviceGetCount(count: *mut i32) -> u32;
    fn cuDeviceGet(device: *mut i32, ordinal: i32) -> u32;
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) -> u32;
    fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> u32;
    fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: u32, from: i32, to: i32) -> u32;
    fn cuCtxEnablePeerAccess(peer: usize, flags: u32) -> u32;
    fn cuCtxDisablePeerAccess(peer: usize) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuMemAddressReserve(at: *mut u64, bytes: usize, align: usize, hint: u64, flags: u64) -> u32;
    fn cuMemAddressFree(address: u64, bytes: usize) -> u32;
    fn cuMemCreate(handle: *mut u64, bytes: usize, given: *const [i32; 8], flags: u64) -> u32;
    fn cuMemRelease(handle: u64) -> u32;
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> u32;
    fn cuMemUnmap(address: u64, bytes: usize) -> u32;
    fn cuMemSetAccess(address: u64, bytes: usize, given: *const [i32; 3], count: usize) -> u32;
    fn cuMemGetAccess(flags: *mut u64, location: *const [i32; 2], address: u64) -> u32;
    fn nvmlInit_v2() -> u32;
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> u32;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut usize) -> u32;
    fn nvmlDeviceGetIndex(device: usize, index: *mut u32) -> u32;
    fn nvmlDeviceGetP2PStatus(device: usize, other: usize, number: u32, status: *mut u32) -> u32;
    fn nvmlDeviceGetMemoryInfo(device: usize, info: *mut [u64; 3]) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> u32;
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) -> u32;
    fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) -> u32;
    fn cuCtxDestroy_v2(context: usize) -> u32;
    fn cuCtxSetCurrent(context: usize) -> u32;
    fn cuCtxGetDevice(device: *mut i32) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemAllocHost_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFreeHost(address: u64) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32;
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuMemcpyPeer(to: u64, to_context: usize, from: u64, from_context: usize, n: usize) -> u32;
    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> u32;
    fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, address: u64) -> u32;
    fn cuModuleLoadData(module: *mut usize, image: *const c_void) -> u32;
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> u32;
    fn cuLibraryLoadData(
        library: *mut usize,
        code: *const c_void,
        options: *const u32,
        values: *const c_void,
        count: u32,
        library_options: *const u32,
        library_values: *const c_void,
        library_count: u32,
    ) -> u32;
    fn cuLibraryGetKernel(kernel: *mut usize, library: usize, name: *const c_char) -> u32;
    fn cuLibraryUnload(library: usize) -> u32;
    fn cuLaunchKernel(
        function: usize,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: usize,
        parameters: *const *const c_void,
        extra: *const c_void,
    ) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamGetDevice(stream: usize, device: *mut i32) -> u32;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32;
    fn cuEventCreate(event: *mut usize, flags: u32) -> u32;
    fn cuEventRecord(event: usize, stream: usize) -> u32;
    fn cuEventSynchronize(event: usize) -> u32;
    fn cuEventElapsedTime(ms: *mut f32, start: usize, end: usize) -> u32;
}

/// Makes the tests take turns. Some free memory twice: another test could get the address in
/// between. Others check that a device has no access to memory of another, and access that one
/// context gets is for all contexts of its device.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the primary context of a device current, and returns it.
fn on(device: i32) -> usize {
    library_on(&["software:0", "software:1"]);
    let mut context = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, device), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
    }
    context
}

fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut address, bytes) }, 0);
    address
}

fn fill(address: u64, value: u32, count: usize) {
    // SAFETY: the memory is the test's.
    assert_eq!(unsafe { cuMemsetD32_v2(address, value, count) }, 0);
}

fn words(address: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0_u32; count];
    // SAFETY: the vector has room for the bytes.
    let copied = unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, 4 * count) };
    assert_eq!(copied, 0);
    words
}

/// Returns a 32-bit attribute of a pointer.
fn attribute(number: u32, address: u64) -> i32 {
    let mut value = -7_i32;
    // SAFETY: the attribute has 32 bits.
    let asked = unsafe { cuPointerGetAttribute((&raw mut value).cast(), number, address) };
    assert_eq!(asked, 0);
    value
}

/// Loads the code in the current context, and returns the kernel.
fn kernel() -> usize {
    let (mut module, mut function) = (0, 0);
    // SAFETY: the code and the name end with a NUL.
    unsafe {
        assert_eq!(cuModuleLoadData(&raw mut module, CODE.as_ptr().cast()), 0);
        let name = c"increment".as_ptr();
        assert_eq!(cuModuleGetFunction(&raw mut function, module, name), 0);
    }
    function
}

/// Launches the kernel on 32 words at an address.
fn launch(function: usize, address: u64, stream: usize) -> u32 {
    let parameters = [(&raw const address).cast::<c_void>()];
    // SAFETY: the kernel has one parameter of 8 bytes.
    unsafe {
        cuLaunchKernel(
            function,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            stream,
            parameters.as_ptr(),
            null(),
        )
    }
}

#[test]
fn devices_are_counted_and_differ() {
    let _alone = alone();
    on(0);
    let (mut count, mut device) = (0, 0);
    let mut uuids = [[0; 16]; 2];
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuDeviceGetCount(&raw mut count), 0);
        assert_eq!(count, 2);
        assert_eq!(cuDeviceGet(&raw mut device, 1), 0);
        assert_eq!(device, 1);
        assert_eq!(cuDeviceGet(&raw mut device, 2), INVALID_DEVICE);
        assert_eq!(cuDeviceGet(&raw mut device, -1), INVALID_DEVICE);
        assert_eq!(cuDeviceGetUuid(&raw mut uuids[0], 0), 0);
        assert_eq!(cuDeviceGetUuid(&raw mut uuids[1], 1), 0);
    }
    assert_ne!(uuids[0], uuids[1]);
}

#[test]
fn a_context_is_one_of_its_device() {
    let _alone = alone();
    let first = on(0);
    let second = on(1);
    assert_ne!(first, second);
    let (mut device, mut own, mut flags, mut active) = (-1, 0, 0, 0);
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuCtxGetDevice(&raw mut device), 0);
        assert_eq!(device, 1);
        assert_eq!(
            cuDevicePrimaryCtxGetState(1, &raw mut flags, &raw mut active),
            0
        );
        assert_eq!(active, 1);
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 2), INVALID_DEVICE);
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 0), 0);
        assert_eq!(cuCtxGetDevice(&raw mut device), 0);
        assert_eq!(device, 0);
        // From a thread that works on the other device.
        assert_eq!(cuCtxSetCurrent(second), 0);
        assert_eq!(cuCtxDestroy_v2(own), 0);
        assert_eq!(cuCtxGetDevice(&raw mut device), 0);
    }
    assert_eq!(device, 1);
}

#[test]
fn addresses_tell_the_device_and_memory_is_freed_from_any_context() {
    let _alone = alone();
    let first = on(0);
    let on_first = allocate(1 << 20);
    let second = on(1);
    let on_second = allocate(1 << 20);
    assert!(on_first.abs_diff(on_second) >= 1 << 20);
    for (address, device, context) in [(on_first, 0, first), (on_second, 1, second)] {
        assert_eq!(attribute(9, address + 100), device);
        let mut of_context = 0_usize;
        // SAFETY: the attribute is a handle.
        let asked =
            unsafe { cuPointerGetAttribute((&raw mut of_context).cast(), 1, address + 100) };
        assert_eq!((asked, of_context), (0, context));
    }
    // SAFETY: the memory is not used afterwards.
    unsafe {
        assert_eq!(cuMemFree_v2(on_first), 0);
        assert_eq!(cuMemFree_v2(on_first), INVALID_VALUE);
        assert_eq!(cuCtxSetCurrent(first), 0);
        assert_eq!(cuMemFree_v2(on_second), 0);
    }
}

#[test]
fn page_locked_memory_is_copied_and_freed_from_any_context() {
    let _alone = alone();
    on(0);
    let mut host = 0;
    // SAFETY: the memory is the test's, and has the bytes.
    unsafe {
        assert_eq!(cuMemAllocHost_v2(&raw mut host, 128), 0);
        on(1);
        let memory = allocate(128);
        fill(memory, 9, 32);
        assert_eq!(cuMemcpyAsync(host, memory, 128, 0), 0);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(std::slice::from_raw_parts(host as *const u32, 32), [9; 32]);
        assert_eq!(cuMemFreeHost(host), 0);
        assert_eq!(cuMemFreeHost(host), INVALID_VALUE);
    }
}

#[test]
fn memory_is_copied_between_devices() {
    let _alone = alone();
    const COUNT: usize = 5 << 20;
    let first = on(0);
    let from = allocate(4 * COUNT);
    fill(from, 1, COUNT);
    fill(from + 4, 2, 1);
    let second = on(1);
    let to = allocate(4 * COUNT);
    let check = |first_word: u32| {
        let found = words(to, COUNT);
        assert_eq!(found[..3], [first_word, 2, 1]);
        assert_eq!(found[COUNT - 1], 1);
        fill(to, 7, COUNT);
    };
    // SAFETY: both ranges have the bytes.
    unsafe {
        assert_eq!(cuMemcpyPeer(to, second, from, first, 4 * COUNT), 0);
        check(1);
        assert_eq!(cuMemcpyDtoD_v2(to, from, 4 * COUNT), 0);
        check(1);
        // Large copies map the other side for a moment; the device has no access afterwards.
        assert_eq!(cuMemsetD32_v2(from, 3, 1), INVALID_VALUE);
        let copies = (0..4).map(|_| {
            std::thread::spawn(move || {
                on(1);
                for _ in 0..5 {
                    assert_eq!(cuMemcpyDtoD_v2(to, from, 4 * COUNT), 0);
                }
            })
        });
        let copies: Vec<_> = copies.collect();
        copies.into_iter().for_each(|copy| copy.join().unwrap());
        check(1);
        // In the order of a stream of the source's device.
        assert_eq!(cuCtxSetCurrent(first), 0);
        let mut stream = 0;
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        let function = kernel();
        assert_eq!(launch(function, from, stream), 0);
        assert_eq!(cuCtxSetCurrent(second), 0);
        fill(to, 0, 1);
        assert_eq!(cuMemcpyAsync(to, from, 4, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(words(to, 1), [2]);
        assert_eq!(cuMemcpyPeer(to, second, from, 0x1234, 4), 201);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
    }
}

#[test]
fn each_device_launches_its_own_code_on_its_own_memory() {
    let _alone = alone();
    for device in [0, 1] {
        on(device);
        let memory = allocate(128);
        fill(memory, 10 + device as u32, 32);
        let function = kernel();
        assert_eq!(launch(function, memory, 0), 0);
        assert_eq!(words(memory, 32), vec![11 + device as u32; 32]);
        on(1 - device);
        assert_eq!(launch(function, memory, 0), INVALID_HANDLE);
    }
}

#[test]
fn a_kernel_of_a_library_is_launched_on_every_device() {
    let _alone = alone();
    on(0);
    let (mut library, mut kernel) = (0, 0);
    // SAFETY: the code and the name end with a NUL; there are no options.
    unsafe {
        let code = CODE.as_ptr().cast();
        let loaded =
            cuLibraryLoadData(&raw mut library, code, null(), null(), 0, null(), null(), 0);
        assert_eq!(loaded, 0);
        assert_eq!(
            cuLibraryGetKernel(&raw mut kernel, library, c"increment".as_ptr()),
            0
        );
    }
    for device in [1, 0, 1] {
        on(device);
        let memory = allocate(128);
        fill(memory, 5, 32);
        assert_eq!(launch(kernel, memory, 0), 0);
        assert_eq!(words(memory, 32), [6; 32]);
    }
    // SAFETY: nothing of the library is used afterwards, but in calls that are refused.
    assert_eq!(unsafe { cuLibraryUnload(library) }, 0);
    for device in [0, 1] {
        on(device);
        assert_eq!(launch(kernel, 0, 0), INVALID_HANDLE);
    }
}

#[test]
fn streams_and_events_are_of_a_device_and_wait_for_each_other() {
    let _alone = alone();
    on(0);
    let [mut first, mut second, mut event, mut other] = [0; 4];
    let mut device = -1;
    let from = allocate(128);
    let function = kernel();
    // SAFETY: pointers are valid for the calls; handles may be of another device.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut first, 1), 0);
        assert_eq!(cuEventCreate(&raw mut event, 0), 0);
        on(1);
        assert_eq!(cuStreamCreate(&raw mut second, 1), 0);
        assert_eq!(cuEventCreate(&raw mut other, 0), 0);
        assert_eq!(cuStreamGetDevice(first, &raw mut device), 0);
        assert_eq!(device, 0);
        assert_eq!(cuStreamGetDevice(second, &raw mut device), 0);
        assert_eq!(device, 1);
        // A kernel is launched in a stream of its own device alone, and an event recorded.
        assert_eq!(launch(function, from, first), INVALID_HANDLE);
        assert_eq!(cuEventRecord(event, second), INVALID_HANDLE);
        on(0);
        fill(from, 0, 32);
        for _ in 0..50 {
            assert_eq!(launch(function, from, first), 0);
        }
        assert_eq!(cuEventRecord(event, first), 0);
        on(1);
        assert_eq!(cuStreamWaitEvent(second, event, 0), 0);
        assert_eq!(cuEventRecord(other, second), 0);
        assert_eq!(cuEventSynchronize(other), 0);
        assert_eq!(cuEventSynchronize(event), 0);
        let mut ms = 0.0;
        assert_eq!(
            cuEventElapsedTime(&raw mut ms, event, other),
            INVALID_HANDLE
        );
    }
    on(0);
    assert_eq!(words(from, 32), [50; 32]);
}

#[test]
fn a_device_reaches_memory_of_another_once_a_context_has_access() {
    let _alone = alone();
    const LARGE: usize = 80 << 20;
    let first = on(0);
    let before = allocate(128);
    let (mut can, mut value) = (0, 7);
    // SAFETY: pointers are valid for the calls; handles may be wrong.
    unsafe {
        for (device, peer, wanted) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
            assert_eq!(cuDeviceCanAccessPeer(&raw mut can, device, peer), 0);
            assert_eq!(can, wanted);
        }
        assert_eq!(cuDeviceCanAccessPeer(&raw mut can, 0, 2), INVALID_DEVICE);
        assert_eq!(cuDeviceGetP2PAttribute(&raw mut value, 2, 0, 1), 0);
        assert_eq!(value, 1);
        // The best rank; atomics work across, as over NVLink; there are no arrays.
        for (attribute, wanted) in [(1, 0), (3, 1), (4, 0), (5, 0)] {
            value = -1;
            let told = cuDeviceGetP2PAttribute(&raw mut value, attribute, 0, 1);
            assert_eq!((told, value), (0, wanted), "{attribute}");
        }
        assert_eq!(
            cuDeviceGetP2PAttribute(&raw mut value, 0, 0, 1),
            INVALID_VALUE
        );
        assert_eq!(
            cuDeviceGetP2PAttribute(&raw mut value, 2, 1, 1),
            INVALID_DEVICE
        );
        assert_eq!(
            cuDeviceGetP2PAttribute(&raw mut value, 9, 0, 1),
            INVALID_VALUE
        );
        // A context of its own, which ends with the access.
        let (mut own, mut stream, mut graph) = (0, 0, 0);
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 1), 0);
        assert_eq!(cuCtxEnablePeerAccess(first, 1), INVALID_VALUE);
        assert_eq!(cuCtxEnablePeerAccess(0x1234, 0), INVALID_CONTEXT);
        assert_eq!(cuCtxEnablePeerAccess(own, 0), PEER_ACCESS_UNSUPPORTED);
        assert_eq!(cuCtxDisablePeerAccess(first), PEER_ACCESS_NOT_ENABLED);
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        let mine = allocate(128);
        // Without access, copies go through memory of the host, which no graph can do.
        assert_eq!(cuStreamBeginCapture_v2(stream, RELAXED), 0);
        assert_ne!(cuMemcpyAsync(mine, before, 128, stream), 0);
        cuStreamEndCapture(stream, &raw mut graph);
        assert_eq!(cuCtxEnablePeerAccess(first, 0), 0);
        assert_eq!(cuCtxEnablePeerAccess(first, 0), PEER_ACCESS_ALREADY_ENABLED);
        assert_eq!(cuStreamBeginCapture_v2(stream, RELAXED), 0);
        assert_eq!(cuMemcpyAsync(mine, before, 128, stream), 0);
        assert_eq!(cuStreamEndCapture(stream, &raw mut graph), 0);
        let function = kernel();
        // What was there before, what comes afterwards, and what has its address again.
        let mut addresses = vec![before];
        for _ in 0..3 {
            assert_eq!(cuCtxSetCurrent(first), 0);
            let large = allocate(LARGE);
            addresses.push(large + LARGE as u64 - 128);
            for address in &addresses {
                fill(*address, 20, 32);
            }
            assert_eq!(cuCtxSynchronize(), 0);
            assert_eq!(cuCtxSetCurrent(own), 0);
            for address in &addresses {
                assert_eq!(launch(function, *address, 0), 0);
                fill(*address + 64, 5, 1);
            }
            assert_eq!(cuMemcpyDtoD_v2(mine, before, 128), 0);
            assert_eq!(words(mine, 17)[15..], [21, 5]);
            assert_eq!(cuCtxSetCurrent(first), 0);
            for address in &addresses {
                assert_eq!(words(*address, 17)[15..], [21, 5]);
            }
            addresses.pop();
            assert_eq!(cuMemFree_v2(large), 0);
        }
        assert_eq!(cuCtxSetCurrent(own), 0);
        assert_eq!(cuCtxDisablePeerAccess(first), 0);
        assert_eq!(cuCtxDisablePeerAccess(first), PEER_ACCESS_NOT_ENABLED);
        assert_eq!(cuMemsetD32_v2(before, 1, 1), INVALID_VALUE);
        assert_eq!(cuCtxEnablePeerAccess(first, 0), 0);
        fill(before, 1, 1);
        // The access ends with its context.
        assert_eq!(cuCtxDestroy_v2(own), 0);
        on(1);
        assert_eq!(cuMemsetD32_v2(before, 1, 1), INVALID_VALUE);
    }
}

#[test]
fn physical_memory_is_of_the_device_that_is_asked_for() {
    let _alone = alone();
    const BYTES: usize = 2 << 20;
    on(0);
    let (mut handle, mut address) = (0, 0);
    // SAFETY: pointers are valid for the calls; the memory is the test's.
    unsafe {
        let given = [1, 0, 1, 1, 0, 0, 0, 0];
        assert_eq!(cuMemCreate(&raw mut handle, BYTES, &raw const given, 0), 0);
        assert_eq!(cuMemAddressReserve(&raw mut address, BYTES, 0, 0, 0), 0);
        assert_eq!(cuMemMap(address, BYTES, 0, handle, 0), 0);
        assert_eq!(cuMemAddressFree(address, BYTES), INVALID_VALUE);
        for (access, wanted) in [([1, 2, 3], INVALID_VALUE), ([1, 1, 2], INVALID_VALUE)] {
            assert_eq!(cuMemSetAccess(address, BYTES, &raw const access, 1), wanted);
        }
        let own = [1, 1, 3];
        assert_eq!(cuMemSetAccess(address, BYTES, &raw const own, 1), 0);
        assert_eq!(attribute(9, address), 1);
        on(1);
        fill(address, 4, 32);
        assert_eq!(launch(kernel(), address, 0), 0);
        on(0);
        assert_eq!(words(address, 32), [5; 32]);
        // The other device has no rights until it gets some.
        assert_eq!(cuMemsetD32_v2(address, 1, 1), INVALID_VALUE);
        let both = [[1, 0, 3], [1, 1, 3]];
        assert_eq!(cuMemSetAccess(address, BYTES, both.as_ptr(), 2), 0);
        let (mut rights, device) = (0, [1, 0]);
        assert_eq!(
            cuMemGetAccess(&raw mut rights, &raw const device, address),
            0
        );
        assert_eq!(rights, 3);
        assert_eq!(launch(kernel(), address, 0), 0);
        assert_eq!(words(address, 32), [6; 32]);
        let none = [1, 0, 0];
        assert_eq!(cuMemSetAccess(address, BYTES, &raw const none, 1), 0);
        assert_eq!(
            cuMemGetAccess(&raw mut rights, &raw const device, address),
            0
        );
        assert_eq!(rights, 0);
        assert_eq!(cuMemsetD32_v2(address, 1, 1), INVALID_VALUE);
        assert_eq!(cuMemSetAccess(address, BYTES, both.as_ptr(), 2), 0);
        assert_eq!(cuMemUnmap(address, BYTES), 0);
        assert_eq!(cuMemRelease(handle), 0);
        assert_eq!(cuMemAddressFree(address, BYTES), 0);
    }
}

#[test]
fn monitors_see_all_devices() {
    let _alone = alone();
    on(0);
    let (mut count, mut index, mut status) = (0, 0, 9);
    let mut devices = [0; 2];
    let mut memory = [[0; 3]; 2];
    // SAFETY: pointers are valid for the calls; the last handle is wrong.
    unsafe {
        assert_eq!(nvmlInit_v2(), 0);
        assert_eq!(nvmlDeviceGetCount_v2(&raw mut count), 0);
        assert_eq!(count, 2);
        for (number, device) in (0..).zip(&mut devices) {
            assert_eq!(nvmlDeviceGetHandleByIndex_v2(number, device), 0);
            assert_eq!(nvmlDeviceGetIndex(*device, &raw mut index), 0);
            assert_eq!(index, number);
        }
        let [first, second] = devices;
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(2, &raw mut devices[0]), 2);
        assert_eq!(nvmlDeviceGetIndex(second + 1, &raw mut index), 2);
        for (other, number, wanted) in [
            (second, 0, 0),
            (second, 3, 0),
            (second, 2, 5),
            (first, 3, 5),
        ] {
            assert_eq!(
                nvmlDeviceGetP2PStatus(first, other, number, &raw mut status),
                0
            );
            assert_eq!(status, wanted);
        }
        on(1);
        // More than other tests have at a time.
        let large = allocate(600 << 20);
        assert_eq!(nvmlDeviceGetMemoryInfo(first, &raw mut memory[0]), 0);
        assert_eq!(nvmlDeviceGetMemoryInfo(second, &raw mut memory[1]), 0);
        assert_eq!(cuMemFree_v2(large), 0);
    }
    let [first_used, second_used] = memory.map(|[_, _, used]| used);
    assert!(first_used < 600 << 20 && second_used >= 600 << 20);
}
