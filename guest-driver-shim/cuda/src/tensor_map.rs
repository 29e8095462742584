//! Descriptions of tensors (CUDA driver API, "Tensor Map Object Management"), by which kernels copy
//! boxes of them. What is in a description only the host's driver knows.

use causeway_protocol::message::{
    EncodeTensorMap, Status, TENSOR_MAP_BYTES, TENSOR_RANK_MAX, TensorMapKind,
};

use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};

/// Refuses a place where no description can be. Kernels want it at a multiple of 64; NVIDIA's
/// library writes it anywhere.
fn check_place(map: Out<[u8; TENSOR_MAP_BYTES]>) -> Answer {
    match map.is_null() {
        true => Err(Code::INVALID_VALUE),
        false => Ok(()),
    }
}

/// Returns `count` numbers of a caller's array, and zeros behind them.
fn numbers<T, const N: usize>(given: In<T>, count: usize) -> Answer<[T; N]>
where
    T: zerocopy::FromBytes + Copy + Default,
{
    let mut numbers = [T::default(); N];
    for (index, number) in numbers.iter_mut().take(count).enumerate() {
        *number = given.get_at(index)?;
    }
    Ok(numbers)
}

/// Asks the device, and writes the description.
fn ask(driver: &Driver, request: &EncodeTensorMap, map: Out<[u8; TENSOR_MAP_BYTES]>) -> Answer {
    let reply = driver.space.encode_tensor_map(request);
    let reply = reply.map_err(|error| match error.status() {
        Status::Unsupported | Status::BadOpcode => Code::NOT_SUPPORTED,
        Status::MemoryFault | Status::BadRange => Code::INVALID_VALUE,
        _ => driver
            .check_sticky()
            .err()
            .unwrap_or(Code::DEVICE_UNAVAILABLE),
    })?;
    match reply.cuda_result {
        0 => map.set(reply.map),
        code => Err(Code(code)),
    }
}

/// Returns what both kinds of tensors have.
fn tensor(
    (kind, data_type, rank, address): (TensorMapKind, u32, u32, u64),
    (dimensions, strides, element_strides): (In<u64>, In<u64>, In<u32>),
    [interleave, swizzle, promotion, fill]: [u32; 4],
) -> Answer<EncodeTensorMap> {
    let count = rank as usize;
    if !(1..=TENSOR_RANK_MAX).contains(&count) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(EncodeTensorMap {
        kind: kind as u32,
        address,
        data_type,
        rank,
        interleave,
        swizzle,
        promotion,
        fill,
        dimensions: numbers(dimensions, count)?,
        strides: numbers(strides, count - 1)?,
        element_strides: numbers(element_strides, count)?,
        ..EncodeTensorMap::default()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeTiled(
    map: Out<[u8; TENSOR_MAP_BYTES]>,
    data_type: u32,
    rank: u32,
    address: u64,
    dimensions: In<u64>,
    strides: In<u64>,
    box_elements: In<u32>,
    element_strides: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> u32 {
    call_in_context(|driver, _| {
        check_place(map)?;
        let request = tensor(
            (TensorMapKind::Tiled, data_type, rank, address),
            (dimensions, strides, element_strides),
            [interleave, swizzle, promotion, fill],
        )?;
        let request = EncodeTensorMap {
            box_elements: numbers(box_elements, rank as usize)?,
            ..request
        };
        ask(driver, &request, map)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeIm2col(
    map: Out<[u8; TENSOR_MAP_BYTES]>,
    data_type: u32,
    rank: u32,
    address: u64,
    dimensions: In<u64>,
    strides: In<u64>,
    lower_corner: In<u32>,
    upper_corner: In<u32>,
    channels: u32,
    pixels: u32,
    element_strides: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> u32 {
    call_in_context(|driver, _| {
        check_place(map)?;
        let request = tensor(
            (TensorMapKind::Im2col, data_type, rank, address),
            (dimensions, strides, element_strides),
            [interleave, swizzle, promotion, fill],
        )?;
        let corners = (rank as usize).saturating_sub(2);
        let request = EncodeTensorMap {
            lower_corner: numbers(lower_corner, corners)?,
            upper_corner: numbers(upper_corner, corners)?,
            channels,
            pixels,
            ..request
        };
        ask(driver, &request, map)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapReplaceAddress(map: Out<[u8; TENSOR_MAP_BYTES]>, address: u64) -> u32 {
    call_in_context(|driver, _| {
        check_place(map)?;
        let request = EncodeTensorMap {
            kind: TensorMapKind::Replace as u32,
            address,
            map: map.get()?,
            ..EncodeTensorMap::default()
        };
        ask(driver, &request, map)
    })
}
