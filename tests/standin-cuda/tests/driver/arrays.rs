use std::ptr::{null, null_mut};

use crate::support::{allocate, context, download, is_child, made, sys, upload};
use crate::{ok, refused};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;

/// Words in rows of 8.
fn description(height: usize, depth: usize) -> sys::CUDA_ARRAY3D_DESCRIPTOR {
    sys::CUDA_ARRAY3D_DESCRIPTOR {
        Width: 8,
        Height: height,
        Depth: depth,
        Format: sys::CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
        Flags: 0,
    }
}

fn array(height: usize, depth: usize) -> sys::CUarray {
    let description = description(height, depth);
    made(|into| unsafe { sys::cuArray3DCreate_v2(into, &description) })
}

/// A copy of rows of 32 bytes between memory and the beginning of an array.
fn copy(memory: u64, array: sys::CUarray, rows: usize, is_into_array: bool) -> sys::CUDA_MEMCPY3D {
    let (device, of_array) = (
        sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        sys::CUmemorytype::CU_MEMORYTYPE_ARRAY,
    );
    let (from, to) = match is_into_array {
        true => (device, of_array),
        false => (of_array, device),
    };
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from,
        srcHost: null(),
        srcDevice: memory,
        srcArray: array,
        reserved0: null_mut(),
        srcPitch: 32,
        srcHeight: rows,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to,
        dstHost: null_mut(),
        dstDevice: memory,
        dstArray: array,
        reserved1: null_mut(),
        dstPitch: 32,
        dstHeight: rows,
        WidthInBytes: 32,
        Height: rows,
        Depth: 1,
    }
}

#[test]
fn arrays_keep_what_is_copied_to_them() {
    if !is_child("arrays::arrays_keep_what_is_copied_to_them", &[]) {
        return;
    }
    context();
    let array = array(4, 2);
    let told: sys::CUDA_ARRAY3D_DESCRIPTOR =
        made(|into| unsafe { sys::cuArray3DGetDescriptor_v2(into, array) });
    assert_eq!(told, description(4, 2));
    let memory = allocate(256);
    let words: Vec<u32> = (0..32).collect();
    upload(memory, &words);
    ok!(sys::cuMemcpy3D_v2(&copy(memory, array, 4, true)));
    upload(memory, &[0; 64]);
    let mut back = copy(memory, array, 3, false);
    (back.srcXInBytes, back.srcY, back.WidthInBytes) = (8, 1, 24);
    ok!(sys::cuMemcpy3DAsync_v2(&back, null_mut()));
    ok!(sys::cuCtxSynchronize());
    let got = download(memory, 8);
    assert_eq!(got, [10, 11, 12, 13, 14, 15, 0, 0]);

    let mut beyond = copy(memory, array, 4, false);
    beyond.srcY = 1;
    refused!(INVALID_VALUE, sys::cuMemcpy3D_v2(&beyond));
    ok!(sys::cuArrayDestroy(array));
    refused!(INVALID_HANDLE, sys::cuArrayDestroy(array));
    let stale = copy(memory, array, 4, false);
    refused!(INVALID_HANDLE, sys::cuMemcpy3D_v2(&stale));
}

#[test]
fn wrong_arrays_are_refused() {
    if !is_child("arrays::wrong_arrays_are_refused", &[]) {
        return;
    }
    context();
    let refuse = |description: sys::CUDA_ARRAY3D_DESCRIPTOR| {
        let mut array = null_mut();
        refused!(
            INVALID_VALUE,
            sys::cuArray3DCreate_v2(&mut array, &description)
        );
    };
    let right = description(0, 0);
    refuse(sys::CUDA_ARRAY3D_DESCRIPTOR { Width: 0, ..right });
    refuse(sys::CUDA_ARRAY3D_DESCRIPTOR { Depth: 2, ..right });
    refuse(sys::CUDA_ARRAY3D_DESCRIPTOR {
        NumChannels: 3,
        ..right
    });
    // Gathering, from more rows than a GPU gathers from.
    refuse(sys::CUDA_ARRAY3D_DESCRIPTOR {
        Height: 40_000,
        Flags: 8,
        ..right
    });
    let mut requirements = unsafe { std::mem::zeroed() };
    refused!(
        INVALID_VALUE,
        sys::cuArrayGetMemoryRequirements(&mut requirements, array(0, 0), 0)
    );
}

#[test]
fn textures_and_surfaces_are_objects_of_their_own() {
    let name = "arrays::textures_and_surfaces_are_objects_of_their_own";
    if !is_child(name, &[]) {
        return;
    }
    context();
    let array = array(4, 0);
    let mut resource: sys::CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
    resource.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    let sampling: sys::CUDA_TEXTURE_DESC = unsafe { std::mem::zeroed() };
    let texture: u64 =
        made(|into| unsafe { sys::cuTexObjectCreate(into, &resource, &sampling, null()) });
    let surface: u64 = made(|into| unsafe { sys::cuSurfObjectCreate(into, &resource) });
    assert!(texture != 0 && surface != 0 && texture != surface);
    refused!(INVALID_VALUE, sys::cuTexObjectDestroy(surface));
    refused!(INVALID_VALUE, sys::cuSurfObjectDestroy(texture));
    ok!(sys::cuTexObjectDestroy(texture));
    refused!(INVALID_VALUE, sys::cuTexObjectDestroy(texture));
    ok!(sys::cuSurfObjectDestroy(surface));
    ok!(sys::cuArrayDestroy(array));
    let mut object = 0;
    refused!(
        INVALID_VALUE,
        sys::cuTexObjectCreate(&mut object, &resource, &sampling, null())
    );
}
