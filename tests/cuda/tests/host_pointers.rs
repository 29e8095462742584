//! Kernels that get pointers of the host, and tensors that are described for kernels.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;

use causeway_cuda_tests::{is_on_software, library as start};
use code::*;

unsafe extern "C" {
    fn cuMemHostAlloc(address: *mut u64, bytes: usize, flags: u32) -> u32;
    fn cuMemFreeHost(address: u64) -> u32;
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> u32;
    fn cuTensorMapEncodeTiled(
        map: *mut Map,
        data_type: u32,
        rank: u32,
        address: u64,
        dimensions: *const u64,
        strides: *const u64,
        boxes: *const u32,
        steps: *const u32,
        interleave: u32,
        swizzle: u32,
        promotion: u32,
        fill: u32,
    ) -> u32;
    fn cuTensorMapReplaceAddress(map: *mut Map, address: u64) -> u32;
}

#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Map([u8; 128]);

/// Returns the elements at an address.
fn elements<'a>(address: u64, count: usize) -> &'a mut [f32] {
    let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the caller has allocated as many elements there, and no work uses them.
    unsafe { std::slice::from_raw_parts_mut(pointer, count) }
}

#[test]
fn kernels_use_pointers_of_the_host() {
    start();
    let (mut pinned, mut managed, mut large) = (0, 0, 0);
    let count = 1000_u32;
    let bytes = 4 * count as usize;
    // SAFETY: each stores an address.
    unsafe {
        assert_eq!(cuMemHostAlloc(&mut pinned, bytes, 0), 0);
        assert_eq!(cuMemAllocManaged(&mut managed, bytes, 1), 0);
        // It is not divided among others, and no multiple of anything.
        assert_eq!(cuMemAllocManaged(&mut large, 5_000_004, 1), 0);
    }
    for (index, element) in elements(pinned, 1000).iter_mut().enumerate() {
        *element = index as f32;
    }
    elements(managed, 1000).fill(0.5);
    let module = module(KERNELS);
    let add = function(module, c"add");
    // The last elements of the large memory.
    let result = large + 1_000_004;
    let arguments: [*const c_void; 4] = [
        (&raw const pinned).cast(),
        (&raw const managed).cast(),
        (&raw const result).cast(),
        (&raw const count).cast(),
    ];
    assert_eq!(launch(add, [8, 1, 1], [128, 1, 1], &arguments), 0);
    assert_eq!(cuCtxSynchronize(), 0);
    for (index, element) in elements(result, 1000).iter().enumerate() {
        assert!(
            (*element - (index as f32 + 0.5)).abs() < f32::EPSILON,
            "{index}"
        );
    }
    // SAFETY: allocated above, and no longer used.
    assert_eq!(unsafe { cuMemFreeHost(pinned) }, 0);
    assert_eq!(cuMemFree_v2(managed), 0);
    assert_eq!(cuMemFree_v2(large), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn tensors_are_described_where_the_device_copies_them() {
    start();
    let mut address = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut address, 1 << 20), 0);
    let mut map = Map([0; 128]);
    // SAFETY: the arrays have as many numbers as dimensions; the device follows no address.
    let encode = |map: &mut Map, rank, at, box_elements: [u32; 2]| unsafe {
        let (dimensions, strides) = ([256_u64, 128], [1024_u64]);
        let steps = [1_u32, 1];
        // Elements of type `f32`, in their order.
        cuTensorMapEncodeTiled(
            map,
            7,
            rank,
            at,
            dimensions.as_ptr(),
            strides.as_ptr(),
            box_elements.as_ptr(),
            steps.as_ptr(),
            0,
            0,
            0,
            0,
        )
    };
    let first = encode(&mut map, 2, address, [64, 32]);
    if is_on_software() {
        assert_eq!((first, map), (NOT_SUPPORTED, Map([0; 128])));
        return;
    }
    assert_eq!(first, 0);
    assert_ne!(map, Map([0; 128]));
    let mut other = Map([0; 128]);
    assert_eq!(encode(&mut other, 2, address + 4096, [64, 32]), 0);
    assert_ne!(map, other);
    // SAFETY: a description.
    assert_eq!(unsafe { cuTensorMapReplaceAddress(&mut other, address) }, 0);
    assert_eq!(map, other);
    for (rank, at, boxes) in [
        (0, address, [64, 32]),
        (6, address, [64, 32]),
        (2, address + 4, [64, 32]),
        (2, 0x7000_0000_0000, [64, 32]),
        (2, address, [64, 257]),
    ] {
        assert_eq!(
            encode(&mut other, rank, at, boxes),
            INVALID_VALUE,
            "{rank} {at:#x}"
        );
    }
    assert_eq!(map, other, "a refusal changes nothing");
    let null = std::ptr::null_mut();
    // SAFETY: null is refused.
    let refused = unsafe { cuTensorMapReplaceAddress(null, address) };
    assert_eq!(refused, INVALID_VALUE);
    // A place that is not aligned is fine, as for NVIDIA's library.
    let mut room = [map, map];
    // SAFETY: a description and more, of which the call writes one.
    let replaced = unsafe {
        let inside = (&raw mut room).cast::<Map>().byte_add(16);
        inside.write_unaligned(map);
        cuTensorMapReplaceAddress(inside, address)
    };
    assert_eq!(replaced, 0);
    assert_eq!(cuMemFree_v2(address), 0);
}
