//! Arrays of guests.
//!
//! Textures, queues and recordings hold the arrays that they use, so the last reference to an array
//! goes when nothing of this back end uses it any more. The driver destroys it when its context has
//! no work, and its memory is taken and charged until then.

mod zeros;

use std::any::Any;
use std::sync::Arc;

use causeway_mediator::backend::{Array, ArrayCharge, ArrayShape, BackendError};
use causeway_protocol::message::Status;

use crate::device_memory::MemoryAccount;
use crate::driver::{ArrayObject, Context, CudaError, code};
use crate::error::{failed, refused};
use crate::gpu::Gpu;
use crate::idle::DroppedIdle;
use crate::space::state::SpaceState;

/// A block of elements, as GPUs keep them: bytes in a row, and rows.
const BLOCK: [u64; 2] = [64, 8];
/// Most rows, and most slices, of which blocks are kept together.
const TOGETHER_MAX: [u64; 2] = [128, 16];
/// Sizes of small arrays are multiples of this many bytes. That is more than the driver takes (512
/// bytes), since it takes memory in large pieces, which are not free before their last array is.
const SMALL_BYTES: u64 = 64 << 10;
/// An array that is larger than this has pages of its own, of [`PAGE_BYTES`] each.
const SMALL_BYTES_MAX: u64 = 1 << 20;
const PAGE_BYTES: u64 = 2 << 20;

/// An array of an address space.
pub(crate) struct CudaArray {
    parts: DroppedIdle<Parts>,
    shape: ArrayShape,
}

/// What exists until the driver has destroyed the array. The accounts are dropped last.
struct Parts {
    object: ArrayObject,
    taken: MemoryAccount,
    _charge: ArrayCharge,
}

impl CudaArray {
    /// Creates an array of zeros in the address space `state`.
    ///
    /// # Errors
    /// * `Unsupported`: the device has no such array.
    /// * `NoMemory`: the GPU has too little free memory.
    /// * `DeviceLost`, `BackEnd`: the driver failed.
    pub(crate) fn create(
        state: &SpaceState,
        shape: &ArrayShape,
        charge: ArrayCharge,
    ) -> Result<Self, BackendError> {
        let what = || format!("create an array of {:?} elements", shape.size());
        let (gpu, context) = (&state.gpu, &state.maker.context);
        let taken = MemoryAccount::new(gpu, memory_bytes(shape));
        let object = with_room(gpu, || ArrayObject::create(context, shape));
        let object = object.map_err(|e| unsupported_or_failed(what(), e))?;
        let is_filled = zeros::fill(state, &object, shape);
        let parts = Parts {
            object,
            taken,
            _charge: charge,
        };
        let array = Self {
            parts: DroppedIdle::new(parts, &state.idle),
            shape: *shape,
        };
        match is_filled.map_err(|e| failed(what(), e))? {
            true => Ok(array),
            false => Err(refused(Status::DeviceLost, what())),
        }
    }

    /// Returns the driver's array if `array` is one of `context`.
    pub(crate) fn object_in<'a>(
        array: &'a Arc<dyn Array>,
        context: &Arc<Context>,
    ) -> Option<&'a ArrayObject> {
        let array = array.as_any().downcast_ref::<Self>()?;
        let object = &array.parts.object;
        Arc::ptr_eq(object.context(), context).then_some(object)
    }
}

impl Array for CudaArray {
    fn shape(&self) -> &ArrayShape {
        &self.shape
    }

    /// Returns an estimate: the driver does not tell. On an H200 it is never too small, but for
    /// memory that the driver keeps together with that of other arrays.
    fn memory_bytes(&self) -> u64 {
        self.parts.taken.bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Calls `create`, which takes memory of the GPU. Memory that the pool keeps does not make it fail.
fn with_room<T>(gpu: &Gpu, create: impl Fn() -> Result<T, CudaError>) -> Result<T, CudaError> {
    match create() {
        Err(error) if error.code == code::CUDA_ERROR_OUT_OF_MEMORY && gpu.chunks.purge() => {
            create()
        }
        outcome => outcome,
    }
}

/// Returns the error for a request that failed in the driver, where an invalid value is what the
/// device does not have: the mediator has checked the rest.
pub(crate) fn unsupported_or_failed(context: String, error: CudaError) -> BackendError {
    match error.code {
        code::CUDA_ERROR_INVALID_VALUE => refused(Status::Unsupported, context).because(error),
        _ => failed(context, error),
    }
}

/// Returns an estimate of the memory that an array takes, in bytes: whole blocks of elements, of
/// which up to [`TOGETHER_MAX`] are kept together in y and z.
pub(crate) fn memory_bytes(shape: &ArrayShape) -> u64 {
    let together = |count: u64, least: u64, most: u64| {
        let together = count.next_power_of_two().clamp(least, most);
        count.next_multiple_of(together)
    };
    let row = shape.row_bytes().next_multiple_of(BLOCK[0]);
    let rows = together(shape.rows(), BLOCK[1], TOGETHER_MAX[0]);
    let slices = match shape.has_layers() {
        true => shape.slices(),
        false => together(shape.slices(), 1, TOGETHER_MAX[1]),
    };
    let bytes = row * rows * slices;
    bytes.next_multiple_of(match bytes <= SMALL_BYTES_MAX {
        true => SMALL_BYTES,
        false => PAGE_BYTES,
    })
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::Element;
    use causeway_protocol::message::array_flags::{CUBEMAP, LAYERED};

    use super::*;

    /// Measured on an H200 with driver 580: what many such arrays take, for each.
    #[test]
    fn estimates_are_not_below_what_was_measured() {
        let (byte, float) = ((1, 1), (0x20, 1));
        for (size, (format, channels), flags, measured) in [
            ([1, 1, 0], float, 0, 512),
            ([64, 64, 0], float, 0, 16_384),
            ([131_072, 0, 0], (0x20, 4), 0, 16_777_216),
            ([131_072, 0, 0], byte, 0, 1_048_576),
            ([1, 65_536, 0], byte, 0, 4_194_304),
            ([1000, 1000, 0], float, 0, 4_194_304),
            ([1024, 1024, 0], (0x20, 4), 0, 16_777_216),
            ([256, 256, 256], float, 0, 67_108_864),
            ([100, 100, 100], float, 0, 6_291_456),
            ([1, 1, 16_384], byte, 0, 8_388_608),
            ([1000, 0, 7], float, LAYERED, 262_144),
            ([1, 0, 2048], byte, LAYERED, 1_048_576),
            ([100, 100, 7], float, LAYERED, 425_984),
            ([64, 64, 6], float, CUBEMAP, 131_072),
            ([32_768, 32_768, 0], float, 0, 4_294_967_296),
        ] {
            let element = Element::from_wire(format, channels).unwrap();
            let shape = ArrayShape::new(size, element, flags).unwrap();
            let estimate = memory_bytes(&shape);
            let is_close = estimate <= (2 * measured).max(SMALL_BYTES);
            assert!(estimate >= measured && is_close, "{size:?}: {estimate}");
            assert!(estimate >= shape.bytes(), "{size:?}");
        }
    }

    #[test]
    fn estimates_of_the_largest_arrays_fit() {
        let element = Element::from_wire(0x20, 4).unwrap();
        for (size, flags) in [
            ([131_072, 65_536, 0], 0),
            ([16_384; 3], 0),
            ([32_768, 32_768, 2048], LAYERED),
        ] {
            let shape = ArrayShape::new(size, element, flags).unwrap();
            assert!(memory_bytes(&shape) >= shape.bytes());
        }
    }
}
