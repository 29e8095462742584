//! Descriptions of tensors, which the driver computes and the GPU reads.

use causeway_mediator::backend::TensorMapAnswer;
use causeway_protocol::message::{
    EncodeTensorMap, TENSOR_MAP_BYTES, TENSOR_RANK_MAX, TensorMapKind,
};

use super::{Context, CudaError, code};

/// A description, aligned as the driver wants it.
#[repr(C, align(64))]
struct Map([u8; TENSOR_MAP_BYTES]);

/// Asks the driver to describe a tensor. The driver computes; it follows no address.
///
/// # Errors
/// An error that has poisoned the process. Any other result of the driver is an answer.
pub(crate) fn encode(
    context: &Context,
    kind: TensorMapKind,
    request: &EncodeTensorMap,
) -> Result<TensorMapAnswer, CudaError> {
    let ranks = match kind {
        TensorMapKind::Tiled => 1..=TENSOR_RANK_MAX,
        TensorMapKind::Im2col => 3..=TENSOR_RANK_MAX,
        TensorMapKind::Replace => 0..=TENSOR_RANK_MAX,
    };
    if !ranks.contains(&(request.rank as usize)) {
        return Ok((code::CUDA_ERROR_INVALID_VALUE, [0; TENSOR_MAP_BYTES]));
    }
    let driver = context.enter()?;
    // Arrays of its own, each as long as the driver may read: it reads as many words as `rank`,
    // which is at most 5, says.
    let mut map = Map(request.map);
    let into = (&raw mut map).cast();
    let address = std::ptr::without_provenance_mut(request.address as usize);
    let (data_type, rank) = (request.data_type, request.rank);
    let (dimensions, strides) = (request.dimensions, request.strides);
    let (steps, boxes) = (request.element_strides, request.box_elements);
    let lower = request.lower_corner.map(u32::cast_signed);
    let upper = request.upper_corner.map(u32::cast_signed);
    // SAFETY: the driver writes a description, and reads numbers in arrays that are long enough.
    let encoded = unsafe {
        match kind {
            TensorMapKind::Tiled => driver.tensor_map_encode_tiled(
                into,
                data_type,
                rank,
                address,
                dimensions.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                request.interleave,
                request.swizzle,
                request.promotion,
                request.fill,
            ),
            TensorMapKind::Im2col => driver.tensor_map_encode_im2col(
                into,
                data_type,
                rank,
                address,
                dimensions.as_ptr(),
                strides.as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                request.channels,
                request.pixels,
                steps.as_ptr(),
                request.interleave,
                request.swizzle,
                request.promotion,
                request.fill,
            ),
            TensorMapKind::Replace => driver.tensor_map_replace_address(into, address),
        }
    };
    match encoded {
        Ok(()) => Ok((0, map.0)),
        Err(error) if error.is_sticky() => Err(error),
        Err(error) => Ok((error.code, [0; TENSOR_MAP_BYTES])),
    }
}
