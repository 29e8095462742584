use causeway_mediator::backend::{Backend as _, TensorMapAnswer};
use causeway_protocol::message::{
    EncodeTensorMap, MemoryKind, Status, TENSOR_MAP_BYTES, TensorMapKind,
};

use crate::support::{GRANULE, Rig, is_child};

const INVALID_VALUE: u32 = 1;

/// A matrix of 256 by 128 elements of type `f32`, of which kernels copy 64 by 32.
fn matrix(address: u64) -> EncodeTensorMap {
    EncodeTensorMap {
        kind: TensorMapKind::Tiled as u32,
        address,
        data_type: 7,
        rank: 2,
        dimensions: [256, 128, 0, 0, 0],
        strides: [1024, 0, 0, 0],
        element_strides: [1, 1, 0, 0, 0],
        box_elements: [64, 32, 0, 0, 0],
        ..EncodeTensorMap::default()
    }
}

#[test]
fn the_driver_describes_tensors_that_are_mapped() {
    if !is_child("tensors::the_driver_describes_tensors_that_are_mapped", &[]) {
        return;
    }
    let rig = Rig::new();
    let (first, second) = (
        rig.buffer(MemoryKind::Device, GRANULE),
        rig.buffer(MemoryKind::Device, GRANULE),
    );
    let ask = |request: &EncodeTensorMap| rig.space.encode_tensor_map(request);
    let map = |request: &EncodeTensorMap| -> TensorMapAnswer { ask(request).unwrap() };
    let (result, one) = map(&matrix(first.va));
    assert_eq!(result, 0);
    assert_eq!(map(&matrix(first.va)), (0, one), "it only computes");
    let (_, other) = map(&matrix(second.va));
    assert_ne!(one, other);
    let replace = EncodeTensorMap {
        kind: TensorMapKind::Replace as u32,
        address: first.va,
        map: other,
        ..EncodeTensorMap::default()
    };
    assert_eq!(map(&replace), (0, one));
    let images = EncodeTensorMap {
        kind: TensorMapKind::Im2col as u32,
        rank: 4,
        dimensions: [64, 32, 32, 4, 0],
        strides: [256, 256 * 32, 256 * 32 * 32, 0],
        element_strides: [1, 1, 1, 1, 0],
        lower_corner: [u32::MAX, u32::MAX, 0],
        upper_corner: [1, 1, 0],
        channels: 32,
        pixels: 64,
        box_elements: [0; 5],
        ..matrix(first.va)
    };
    assert_eq!(map(&images).0, 0);

    let none = [0; TENSOR_MAP_BYTES];
    let refused = |request| assert_eq!(map(&request), (INVALID_VALUE, none));
    refused(matrix(first.va + 8));
    refused(EncodeTensorMap {
        rank: 0,
        ..matrix(first.va)
    });
    refused(EncodeTensorMap {
        data_type: 99,
        ..matrix(first.va)
    });
    refused(EncodeTensorMap {
        box_elements: [257, 1, 0, 0, 0],
        ..matrix(first.va)
    });
    let status = |request| ask(&request).unwrap_err().status;
    assert_eq!(
        status(EncodeTensorMap {
            rank: 6,
            ..matrix(first.va)
        }),
        Status::BadRange
    );
    assert_eq!(
        status(EncodeTensorMap {
            kind: 9,
            ..matrix(first.va)
        }),
        Status::BadRange
    );
    let gone = second.va;
    rig.free(second);
    assert_eq!(status(matrix(gone)), Status::MemoryFault);
    assert!(!rig.cuda.is_poisoned());
}
