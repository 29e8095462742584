//! Textures and surfaces: of what they are made, and what kernels read and write by them.

use crate::*;

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
