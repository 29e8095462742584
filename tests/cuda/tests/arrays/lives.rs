//! What arrays say of themselves, and when they end.

use crate::*;

#[test]
fn arrays_describe_themselves_and_end_once() {
    causeway_cuda_tests::library();
    let given = sys::CUDA_ARRAY_DESCRIPTOR {
        Width: 100,
        Height: 30,
        Format: sys::CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 2,
    };
    let mut made = 0;
    ok!(cuArrayCreate_v2(&raw mut made, &raw const given));
    let mut found = described([0; 3], 1, 1, 9);
    ok!(cuArray3DGetDescriptor_v2(&raw mut found, made));
    assert_eq!((found.Width, found.Height, found.Depth), (100, 30, 0));
    assert_eq!(
        (found.Format as u32, found.NumChannels, found.Flags),
        (0x20, 2, 0)
    );
    let mut flat = given;
    ok!(cuArrayGetDescriptor_v2(&raw mut flat, made));
    assert_eq!((flat.Width, flat.Height, flat.NumChannels), (100, 30, 2));
    assert!(read(made, [800, 30, 1]).iter().all(|byte| *byte == 0));
    ok!(cuArrayDestroy(made));
    refused!(INVALID_HANDLE, cuArrayDestroy(made));
    refused!(INVALID_HANDLE, cuArrayDestroy(0));
    refused!(INVALID_HANDLE, cuArrayDestroy(usize::MAX));
    refused!(INVALID_HANDLE, cuArrayGetDescriptor_v2(&raw mut flat, made));
    for size in [[0, 1, 0], [1 << 20, 0, 0], [16, 0, 16], [1, usize::MAX, 0]] {
        refused!(
            INVALID_VALUE,
            cuArray3DCreate_v2(&raw mut made, &described(size, 1, 1, 0))
        );
    }
    refused!(
        INVALID_VALUE,
        cuArray3DCreate_v2(&raw mut made, &described([1, 0, 0], 1, 3, 0))
    );
    refused!(
        INVALID_VALUE,
        cuArray3DCreate_v2(&raw mut made, std::ptr::null())
    );
    refused!(
        NOT_SUPPORTED,
        cuArray3DCreate_v2(&raw mut made, &described([1, 1, 0], 1, 1, 0x40))
    );
}

#[test]
fn a_context_ends_its_arrays_and_textures() {
    causeway_cuda_tests::library();
    let (mut context, mut texture) = (0, 0);
    ok!(cuCtxCreate_v2(&raw mut context, 0, 0));
    let array = self::array([32, 16, 0], 0x20, 1, 2);
    let sampling: sys::CUDA_TEXTURE_DESC = zeroed();
    let none = std::ptr::null();
    ok!(cuTexObjectCreate(
        &raw mut texture,
        &of_array(array),
        &raw const sampling,
        none
    ));
    ok!(cuCtxDestroy_v2(context));
    causeway_cuda_tests::library();
    refused!(INVALID_HANDLE, cuArrayDestroy(array));
    refused!(INVALID_VALUE, cuTexObjectDestroy(texture));
}
