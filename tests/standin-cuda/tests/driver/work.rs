use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_kernels::{Argument, CASES, PARAMETER_BYTES_MAX};

use crate::support::{
    PTX, allocate, context, download, function, is_child, launch, made, module, stream, sys, upload,
};
use crate::{ok, refused};

/// Runs a case of the test kernels, with its parameters packed or one by one.
fn run(case: &causeway_kernels::Case, packed: bool) {
    let kernel = function(module(case.ptx), case.name);
    let mut buffers: Vec<Vec<u8>> = case.buffers.iter().map(|b| vec![0; b.bytes]).collect();
    let mut addresses = Vec::new();
    for (index, buffer) in buffers.iter_mut().enumerate() {
        case.fill(index, buffer);
        let address = allocate(buffer.len());
        ok!(sys::cuMemcpyHtoD_v2(
            address,
            buffer.as_ptr().cast(),
            buffer.len()
        ));
        addresses.push(address);
    }
    let mut block = [0; PARAMETER_BYTES_MAX];
    let mut used = case.parameters(&addresses, &mut block);
    let mut values: Vec<[u8; 8]> = Vec::new();
    for argument in case.arguments {
        let value = match *argument {
            Argument::Buffer(index) => addresses[index],
            Argument::U32(value) => value.into(),
            Argument::F32(value) => value.to_bits().into(),
        };
        values.push(value.to_le_bytes());
    }
    let mut pointers: Vec<*mut _> = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
    let mut extra = [
        std::ptr::without_provenance_mut(1),
        block.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        std::ptr::from_mut(&mut used).cast(),
        null_mut(),
    ];
    let (parameters, extra) = if packed {
        (null_mut(), extra.as_mut_ptr())
    } else {
        (pointers.as_mut_ptr(), null_mut())
    };
    let ([x, y, z], [bx, by, bz]) = (case.grid, case.block);
    ok!(sys::cuLaunchKernel(
        kernel,
        x,
        y,
        z,
        bx,
        by,
        bz,
        case.dynamic_shared,
        null_mut(),
        parameters,
        extra
    ));
    case.reference(&mut buffers.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
    for (index, (want, address)) in buffers.iter().zip(&addresses).enumerate() {
        let mut got = vec![0; want.len()];
        ok!(sys::cuMemcpyDtoH_v2(
            got.as_mut_ptr().cast(),
            *address,
            got.len()
        ));
        case.compare(index, want, &got).unwrap();
        ok!(sys::cuMemFree_v2(*address));
    }
}

#[test]
fn kernels_compute_what_they_should() {
    if !is_child("work::kernels_compute_what_they_should", &[]) {
        return;
    }
    context();
    for (index, case) in CASES.iter().enumerate() {
        run(case, index % 2 == 0);
    }
}

#[test]
fn streams_are_asynchronous_and_ordered() {
    if !is_child("work::streams_are_asynchronous_and_ordered", &[]) {
        return;
    }
    context();
    let module = module(PTX);
    let add = function(module, "add");
    let (words, gate) = (allocate(4096), allocate(4096));
    ok!(sys::cuMemsetD32_v2(words, 0, 1024));
    ok!(sys::cuMemsetD32_v2(gate, 0, 1024));
    ok!(sys::cuCtxSynchronize());
    let (first, second) = (stream(), stream());
    let event = made(|v| unsafe { sys::cuEventCreate(v, 2) });
    ok!(sys::cuEventQuery(event));
    let no_flags = 0;
    ok!(sys::cuStreamWaitValue64_v2(first, gate, 1, no_flags));
    for _ in 0..10 {
        assert_eq!(launch(add, (1, 1), first, &mut [words]), 0);
    }
    ok!(sys::cuEventRecord(event, first));
    ok!(sys::cuStreamWaitEvent(second, event, 0));
    ok!(sys::cuMemcpyDtoDAsync_v2(words + 64, words, 4, second));
    refused!(600, sys::cuStreamQuery(first));
    refused!(600, sys::cuEventQuery(event));
    refused!(600, sys::cuStreamQuery(second));
    let third = stream();
    ok!(sys::cuStreamWriteValue64_v2(third, gate, 1, no_flags));
    ok!(sys::cuStreamSynchronize(second));
    ok!(sys::cuStreamQuery(first));
    ok!(sys::cuEventSynchronize(event));
    assert_eq!(download(words + 64, 1), [10]);
    ok!(sys::cuStreamDestroy_v2(third));
    refused!(400, sys::cuStreamSynchronize(third));
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    let name = "work::the_default_stream_and_blocking_streams_wait_for_each_other";
    if !is_child(name, &[]) {
        return;
    }
    context();
    let gate = allocate(4096);
    ok!(sys::cuMemsetD32_v2(gate, 0, 1024));
    ok!(sys::cuCtxSynchronize());
    let blocking = made(|v| unsafe { sys::cuStreamCreate(v, 0) });
    let other = made(|v| unsafe { sys::cuStreamCreate(v, 0) });
    ok!(sys::cuStreamWaitValue32_v2(blocking, gate, 1, 0));
    ok!(sys::cuMemsetD32Async(gate + 64, 5, 1, null_mut()));
    refused!(600, sys::cuStreamQuery(null_mut()));
    ok!(sys::cuMemsetD32Async(gate + 128, 6, 1, other));
    refused!(600, sys::cuStreamQuery(other));
    let free = stream();
    ok!(sys::cuMemsetD32Async(gate + 192, 7, 1, free));
    ok!(sys::cuStreamSynchronize(free));
    ok!(sys::cuStreamWriteValue32_v2(free, gate, 1, 0));
    ok!(sys::cuCtxSynchronize());
    let words = download(gate, 64);
    assert_eq!([words[0], words[16], words[32], words[48]], [1, 5, 6, 7]);
}

#[test]
fn a_fence_in_host_memory_is_seen_by_the_host() {
    if !is_child("work::a_fence_in_host_memory_is_seen_by_the_host", &[]) {
        return;
    }
    context();
    let mut host = null_mut();
    ok!(sys::cuMemHostAlloc(&mut host, 4096, 0));
    let fence = unsafe { &*host.cast::<AtomicU64>() };
    assert_eq!(fence.load(Ordering::Acquire), 0);
    let pointer = made(|v| unsafe { sys::cuMemHostGetDevicePointer_v2(v, host, 0) });
    assert_eq!(pointer, host as u64, "addresses are unified");
    let words = allocate(4096);
    upload(words, &[1; 32]);
    let stream = stream();
    let add = function(module(PTX), "add");
    assert_eq!(launch(add, (1, 32), stream, &mut [words]), 0);
    ok!(sys::cuStreamWriteValue64_v2(stream, pointer, 77, 0));
    while fence.load(Ordering::Acquire) != 77 {
        std::thread::yield_now();
    }
    assert_eq!(download(words, 32), [2; 32]);
    refused!(1, sys::cuStreamWriteValue64_v2(stream, pointer + 4, 1, 0));
    refused!(1, sys::cuStreamWriteValue64_v2(stream, 0x1000, 1, 0));
    ok!(sys::cuMemFreeHost(host));
    refused!(1, sys::cuMemFreeHost(host));
}

#[test]
fn launches_are_checked_at_the_call() {
    if !is_child("work::launches_are_checked_at_the_call", &[]) {
        return;
    }
    context();
    let add = function(module(PTX), "add");
    let words = allocate(4096);
    assert_eq!(launch(add, (1, 1025), null_mut(), &mut [words]), 1);
    assert_eq!(launch(add, (0, 1), null_mut(), &mut [words]), 1);
    assert_eq!(launch(null_mut(), (1, 1), null_mut(), &mut [words]), 400);
    let none = null_mut();
    let mut block = words;
    let mut bytes = 4_usize;
    let size = std::ptr::from_mut(&mut bytes).cast::<std::ffi::c_void>();
    let mut extra = [
        std::ptr::without_provenance_mut(1),
        std::ptr::from_mut(&mut block).cast(),
        std::ptr::without_provenance_mut(2),
        size,
        null_mut(),
    ];
    let mut launch_packed = |shared: u32| unsafe {
        let extra = extra.as_mut_ptr();
        sys::cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, shared, none, null_mut(), extra) as u32
    };
    assert_eq!(launch_packed(0), 1, "too few bytes of parameters");
    unsafe { size.cast::<usize>().write(8) };
    assert_eq!(launch_packed(0), 0);
    assert_eq!(launch_packed(49 << 10), 1, "more shared memory than usual");
    let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ok!(sys::cuFuncSetAttribute(add, attribute, 100 << 10));
    assert_eq!(launch_packed(49 << 10), 0);
    refused!(1, sys::cuFuncSetAttribute(add, attribute, 300 << 10));
    ok!(sys::cuCtxSynchronize());
}

#[test]
fn functions_can_be_looked_up_by_name() {
    if !is_child("work::functions_can_be_looked_up_by_name", &[]) {
        return;
    }
    let (mut found, mut status) = (null_mut(), unsafe { std::mem::zeroed() });
    ok!(sys::cuGetProcAddress_v2(
        c"cuMemAlloc".as_ptr(),
        &mut found,
        13000,
        0,
        &mut status
    ));
    assert!(!found.is_null());
    refused!(
        500,
        sys::cuGetProcAddress_v2(c"cuNoSuch".as_ptr(), &mut found, 13000, 0, &mut status)
    );
    assert_eq!(found.cast_const(), null());
}
