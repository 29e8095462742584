use std::ffi::CStr;
use std::ptr::null_mut;

use crate::support::{
    PTX, allocate, context, download, function, is_child, launch, made, module, sys,
};
use crate::{ok, refused};

#[test]
fn nothing_works_before_initialization() {
    if !is_child("contexts::nothing_works_before_initialization", &[]) {
        return;
    }
    let mut count = 0;
    refused!(3, sys::cuDeviceGetCount(&mut count));
    refused!(3, sys::cuMemAlloc_v2(&mut 0, 4));
    refused!(1, sys::cuInit(1));
    ok!(sys::cuInit(0));
    ok!(sys::cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
    refused!(101, sys::cuDeviceGet(&mut count, 1));
    refused!(1, sys::cuDeviceGetCount(null_mut()));
    refused!(201, sys::cuMemAlloc_v2(&mut 0, 4));
    refused!(201, sys::cuCtxSynchronize());
}

#[test]
fn a_machine_without_devices_says_so() {
    let settings = [("CAUSEWAY_STANDIN_DEVICES", "0")];
    if !is_child("contexts::a_machine_without_devices_says_so", &settings) {
        return;
    }
    refused!(100, sys::cuInit(0));
    refused!(3, sys::cuDeviceGetCount(&mut 0));
}

#[test]
fn devices_are_what_the_environment_says() {
    let settings = [
        ("CAUSEWAY_STANDIN_DEVICES", "2"),
        ("CAUSEWAY_STANDIN_DRIVER_VERSION", "12020"),
        ("CAUSEWAY_STANDIN_ATTRIBUTES", "102=0,88=1"),
        ("CAUSEWAY_STANDIN_SMS", "40"),
        ("CAUSEWAY_STANDIN_MEMORY", "1073741824,4294967296"),
        ("CAUSEWAY_STANDIN_UUID", "00112233445566778899aabbccddee00"),
    ];
    if !is_child("contexts::devices_are_what_the_environment_says", &settings) {
        return;
    }
    assert_eq!(made(|v| unsafe { sys::cuDriverGetVersion(v) }), 12020);
    ok!(sys::cuInit(0));
    let mut name = [0; 64];
    ok!(sys::cuDeviceGetName(name.as_mut_ptr(), 64, 1));
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    assert_eq!(name.to_str(), Ok("Causeway stand-in (no GPU)"));
    let bytes = |device| made(|v| unsafe { sys::cuDeviceTotalMem_v2(v, device) });
    assert_eq!([0, 1].map(bytes), [1 << 30, 4 << 30]);
    let uuid = made(|v| unsafe { sys::cuDeviceGetUuid_v2(v, 1) });
    assert_eq!(uuid.bytes[14].cast_unsigned(), 0xee);
    assert_eq!(uuid.bytes[15], 1, "the devices differ");
    use sys::CUdevice_attribute_enum as A;
    for (attribute, wanted) in [
        (
            A::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED,
            0,
        ),
        (A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 1),
        (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 40),
        (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
        (A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1),
    ] {
        let value = made(|v| unsafe { sys::cuDeviceGetAttribute(v, attribute, 0) });
        assert_eq!(value, wanted, "{attribute:?}");
    }
}

#[test]
fn contexts_are_current_per_thread_and_end_with_what_they_have() {
    let name = "contexts::contexts_are_current_per_thread_and_end_with_what_they_have";
    if !is_child(name, &[]) {
        return;
    }
    let context = context();
    let info = || {
        let (mut free, mut total) = (0, 0);
        ok!(sys::cuMemGetInfo_v2(&mut free, &mut total));
        (free, total)
    };
    let (before, total) = info();
    assert_eq!((before, total), (4 << 30, 4 << 30));
    let address = allocate(1 << 20);
    assert_eq!(info().0, before - (1 << 20));
    std::thread::spawn(|| refused!(201, sys::cuCtxSynchronize()))
        .join()
        .unwrap();
    let primary = made(|v| unsafe { sys::cuDevicePrimaryCtxRetain(v, 0) });
    ok!(sys::cuCtxSetCurrent(primary));
    ok!(sys::cuCtxDestroy_v2(context));
    assert_eq!(info().0, before, "memory of the context is freed with it");
    refused!(1, sys::cuMemFree_v2(address));
    refused!(201, sys::cuCtxDestroy_v2(context));
    refused!(201, sys::cuCtxDestroy_v2(primary));
    ok!(sys::cuDevicePrimaryCtxRelease_v2(0));
    refused!(709, sys::cuCtxSynchronize());
    refused!(201, sys::cuDevicePrimaryCtxRelease_v2(0));
}

#[test]
fn a_fault_ends_everything() {
    if !is_child("contexts::a_fault_ends_everything", &[]) {
        return;
    }
    let first = context();
    let wild = function(module(PTX), "add");
    let other = made(|v| unsafe { sys::cuCtxCreate_v4(v, null_mut(), 0, 0) });
    ok!(sys::cuCtxSetCurrent(first));
    assert_eq!(launch(wild, (1, 1), null_mut(), &mut [0x10]), 0);
    refused!(700, sys::cuCtxSynchronize());
    refused!(700, sys::cuMemAlloc_v2(&mut 0, 4));
    refused!(700, sys::cuCtxSetCurrent(other));
    refused!(700, sys::cuCtxCreate_v4(&mut null_mut(), null_mut(), 0, 0));
    ok!(sys::cuInit(0));
    let mut text = std::ptr::null();
    ok!(sys::cuGetErrorName(
        sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        &mut text
    ));
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(text.to_str(), Ok("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

#[test]
fn a_trap_is_a_failed_launch() {
    if !is_child("contexts::a_trap_is_a_failed_launch", &[]) {
        return;
    }
    context();
    let stop = function(module(PTX), "stop");
    assert_eq!(launch(stop, (4, 32), null_mut(), &mut []), 0);
    refused!(719, sys::cuStreamSynchronize(null_mut()));
}

#[test]
fn a_fault_ends_kernels_that_run() {
    if !is_child("contexts::a_fault_ends_kernels_that_run", &[]) {
        return;
    }
    context();
    let special = module(causeway_kernels::special::PTX);
    let forever = function(special, causeway_kernels::special::FOREVER);
    let flag = allocate(4096);
    ok!(sys::cuMemsetD8_v2(flag, 0, 4096));
    assert_eq!(download(flag, 1), [0]);
    let (running, faulting) = (crate::support::stream(), crate::support::stream());
    assert_eq!(launch(forever, (1, 1), running, &mut [flag]), 0);
    refused!(600, sys::cuStreamQuery(running));
    let stop = function(module(PTX), "stop");
    assert_eq!(launch(stop, (1, 1), faulting, &mut []), 0);
    refused!(719, sys::cuStreamSynchronize(faulting));
    refused!(719, sys::cuStreamSynchronize(running));
}
