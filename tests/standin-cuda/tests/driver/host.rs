use std::alloc::Layout;
use std::ptr::null_mut;

use crate::support::{
    PTX, allocate, context, function, is_child, launch, made, module, run_child, stream, sys,
};
use crate::{ok, refused};

const PAGES: usize = 16 * 4096;

/// Shared memory of the process, as guests' RAM is.
fn shared() -> *mut u32 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let memory = unsafe { libc::mmap(null_mut(), PAGES, rights, kind, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.cast()
}

/// Ordinary memory of the process.
fn private() -> *mut u32 {
    let layout = Layout::from_size_align(PAGES, 4096).unwrap();
    unsafe { std::alloc::alloc_zeroed(layout) }.cast()
}

#[test]
fn kernels_use_registered_memory_in_place() {
    if !is_child("host::kernels_use_registered_memory_in_place", &[]) {
        return;
    }
    context();
    let add = function(module(PTX), "add");
    for memory in [shared(), private()] {
        let raw = memory.cast();
        refused!(713, sys::cuMemHostUnregister(raw));
        ok!(sys::cuMemHostRegister_v2(raw, PAGES, 0));
        refused!(712, sys::cuMemHostRegister_v2(raw.byte_add(4096), 4096, 0));
        let pointer = made(|v| unsafe { sys::cuMemHostGetDevicePointer_v2(v, raw, 0) });
        assert_eq!(pointer, memory as u64);
        unsafe { memory.add(5).write_volatile(10) };
        assert_eq!(launch(add, (1, 32), null_mut(), &mut [pointer]), 0);
        ok!(sys::cuCtxSynchronize());
        assert_eq!(unsafe { memory.add(5).read_volatile() }, 11);
        ok!(sys::cuMemHostUnregister(raw));
        refused!(713, sys::cuMemHostUnregister(raw));
    }
}

#[test]
fn memory_goes_while_work_uses_it() {
    if !is_child("host::memory_goes_while_work_uses_it", &[]) {
        return;
    }
    context();
    let special = module(causeway_kernels::special::PTX);
    let forever = function(special, causeway_kernels::special::FOREVER);
    let (memory, seen) = (shared(), shared());
    // The same pages, seen elsewhere as well.
    let view = unsafe { libc::mremap(memory.cast(), 0, PAGES, libc::MREMAP_MAYMOVE) };
    assert_ne!(view, libc::MAP_FAILED);
    ok!(sys::cuMemHostRegister_v2(memory.cast(), PAGES, 0));
    let stream = stream();
    assert_eq!(launch(forever, (1, 1), stream, &mut [memory as u64]), 0);
    refused!(600, sys::cuStreamQuery(stream));
    // Work that has begun keeps the pages; the client may unregister and unmap.
    std::thread::sleep(std::time::Duration::from_millis(50));
    ok!(sys::cuMemHostUnregister(memory.cast()));
    assert_eq!(unsafe { libc::munmap(memory.cast(), PAGES) }, 0);
    refused!(600, sys::cuStreamQuery(stream));
    unsafe { view.cast::<u32>().write_volatile(1) };
    ok!(sys::cuStreamSynchronize(stream));
    // Work that begins now faults.
    assert_eq!(launch(forever, (1, 1), stream, &mut [memory as u64]), 0);
    refused!(700, sys::cuStreamSynchronize(stream));
    let _ = seen;
}

#[test]
fn registration_is_refused_where_it_should_be() {
    let settings = [("CAUSEWAY_STANDIN_LOCKED_BYTES", "65536")];
    if !is_child(
        "host::registration_is_refused_where_it_should_be",
        &settings,
    ) {
        return;
    }
    context();
    let (first, second) = (shared(), shared());
    refused!(1, sys::cuMemHostRegister_v2(null_mut(), 4096, 0));
    refused!(1, sys::cuMemHostRegister_v2(first.cast(), 0, 0));
    refused!(1, sys::cuMemHostRegister_v2(first.cast(), 4096, 64));
    refused!(1, sys::cuMemHostRegister_v2(0x10_0000 as *mut _, 4096, 0));
    ok!(sys::cuMemHostRegister_v2(first.cast(), PAGES, 0));
    refused!(2, sys::cuMemHostRegister_v2(second.cast(), 4096, 0));
    ok!(sys::cuMemHostUnregister(first.cast()));
    assert_eq!(
        unsafe { libc::mprotect(second.cast(), PAGES, libc::PROT_READ) },
        0
    );
    refused!(1, sys::cuMemHostRegister_v2(second.cast(), 4096, 0));
    ok!(sys::cuMemHostRegister_v2(second.cast(), 4096, 8));
}

#[test]
fn device_pointers_may_differ_from_those_of_the_host() {
    let settings = [("CAUSEWAY_STANDIN_ATTRIBUTES", "91=0")];
    if !is_child(
        "host::device_pointers_may_differ_from_those_of_the_host",
        &settings,
    ) {
        return;
    }
    context();
    let memory = shared();
    ok!(sys::cuMemHostRegister_v2(memory.cast(), PAGES, 0));
    let pointer =
        made(|v| unsafe { sys::cuMemHostGetDevicePointer_v2(v, memory.add(2).cast(), 0) });
    assert_ne!(pointer, memory as u64 + 8);
    let add = function(module(PTX), "add");
    assert_eq!(launch(add, (1, 1), null_mut(), &mut [pointer]), 0);
    ok!(sys::cuMemsetD32_v2(pointer + 4, 9, 1));
    ok!(sys::cuCtxSynchronize());
    assert_eq!(unsafe { memory.add(2).read_volatile() }, 1);
    assert_eq!(unsafe { memory.add(3).read_volatile() }, 9);
    assert_eq!(launch(add, (1, 1), null_mut(), &mut [memory as u64]), 0);
    refused!(700, sys::cuCtxSynchronize());
}

/// Run by the next test; aborts.
#[test]
fn pageable_copy() {
    if std::env::var_os("CAUSEWAY_STANDIN_STRICT").is_some() {
        context();
        let device = allocate(4096);
        let word = 5_u32;
        unsafe { sys::cuMemcpy(device, std::ptr::from_ref(&word) as u64, 4) };
        unreachable!("the copy should have ended the process");
    }
}

/// Run by the next test; aborts.
#[test]
fn copy_from_nowhere() {
    if std::env::var_os("CAUSEWAY_STANDIN_STATE").is_some() {
        context();
        unsafe { sys::cuMemcpy(allocate(4096), 0x1_2345_6000, 4) };
        unreachable!("the copy should have ended the process");
    }
}

#[test]
fn wrong_copies_end_the_process_and_say_where() {
    let strict = [("CAUSEWAY_STANDIN_STRICT", "1")];
    for (name, settings, wanted) in [
        ("host::pageable_copy", &strict[..], "pageable memory at 0x"),
        ("host::copy_from_nowhere", &[], "0x123456000"),
    ] {
        let output = run_child(name, settings);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}");
        assert!(text.contains(wanted), "{name}: {text}");
    }
}
