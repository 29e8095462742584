//! Arrays: elements in an order that only the device knows.

use std::sync::Arc;

use causeway_mediator::backend::{ArrayShape, ElementFormat};
use causeway_protocol::packet::ArrayBox;
use cudarc::driver::sys::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D, CUarray, CUarray_format, CUarray_st, CUmemorytype,
};

use super::{Context, CudaError, Owned, Stream};

/// An array, until dropped. The caller drops it after the work and the textures that use it.
pub(crate) struct ArrayObject(Owned<CUarray_st>);

// SAFETY: the handle does not change, and the driver orders calls that use one array.
unsafe impl Sync for ArrayObject {}

impl ArrayObject {
    /// Creates an array. Its elements are what the memory's last user left there.
    ///
    /// # Errors
    /// The driver's error: that a value is invalid if the device has no such array.
    pub(crate) fn create(context: &Arc<Context>, shape: &ArrayShape) -> Result<Self, CudaError> {
        let [width, height, depth] = shape.size().map(|elements| elements as usize);
        let element = shape.element();
        let description = CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format(element.format),
            NumChannels: element.channels,
            // The protocol has the driver's values.
            Flags: shape.flags(),
        };
        // SAFETY: reads the description, stores a new array.
        let created = unsafe {
            Owned::create(context, |driver, raw| {
                driver.array_create(raw, &raw const description)
            })
        };
        created.map(Self)
    }

    /// Returns the context of the array.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    /// Returns the driver's handle.
    pub(super) fn raw(&self) -> CUarray {
        self.0.raw
    }
}

/// Returns a format as the driver names it.
pub(super) fn format(format: ElementFormat) -> CUarray_format {
    match format {
        ElementFormat::Unsigned8 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        ElementFormat::Unsigned16 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT16,
        ElementFormat::Unsigned32 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32,
        ElementFormat::Signed8 => CUarray_format::CU_AD_FORMAT_SIGNED_INT8,
        ElementFormat::Signed16 => CUarray_format::CU_AD_FORMAT_SIGNED_INT16,
        ElementFormat::Signed32 => CUarray_format::CU_AD_FORMAT_SIGNED_INT32,
        ElementFormat::Half => CUarray_format::CU_AD_FORMAT_HALF,
        ElementFormat::Float => CUarray_format::CU_AD_FORMAT_FLOAT,
    }
}

/// One side of a copy.
struct Side {
    kind: CUmemorytype,
    /// Bytes in a row, rows, slices.
    origin: [usize; 3],
    address: u64,
    array: CUarray,
    pitch: usize,
    rows: usize,
}

impl Side {
    fn of_memory(part: &ArrayBox) -> Self {
        Self {
            kind: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            origin: [0; 3],
            address: part.memory.address,
            array: std::ptr::null_mut(),
            pitch: part.memory.pitch as usize,
            rows: part.memory.rows as usize,
        }
    }

    fn of_array(array: &ArrayObject, part: &ArrayBox) -> Self {
        Self {
            kind: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            origin: part.origin.map(|number| number as usize),
            address: 0,
            array: array.raw(),
            pitch: 0,
            rows: 0,
        }
    }
}

/// Returns a copy of the size of `part` as the driver reads it.
fn parameters(part: &ArrayBox, to: &Side, from: &Side) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: from.origin[0],
        srcY: from.origin[1],
        srcZ: from.origin[2],
        srcLOD: 0,
        srcMemoryType: from.kind,
        srcHost: std::ptr::null(),
        srcDevice: from.address,
        srcArray: from.array,
        reserved0: std::ptr::null_mut(),
        srcPitch: from.pitch,
        srcHeight: from.rows,
        dstXInBytes: to.origin[0],
        dstY: to.origin[1],
        dstZ: to.origin[2],
        dstLOD: 0,
        dstMemoryType: to.kind,
        dstHost: std::ptr::null_mut(),
        dstDevice: to.address,
        dstArray: to.array,
        reserved1: std::ptr::null_mut(),
        dstPitch: to.pitch,
        dstHeight: to.rows,
        WidthInBytes: part.width as usize,
        Height: part.height as usize,
        Depth: part.depth as usize,
    }
}

impl Stream {
    /// Copies `part` between addresses that the caller knows to be mapped and `array`, within which
    /// the box is: into the array, or out of it. The caller keeps the array until that is done.
    pub(crate) fn copy_array(
        &self,
        array: &ArrayObject,
        part: &ArrayBox,
        is_into_array: bool,
    ) -> Result<(), CudaError> {
        let driver = self.context().enter()?;
        let (memory, array) = (Side::of_memory(part), Side::of_array(array, part));
        let copy = match is_into_array {
            true => parameters(part, &array, &memory),
            false => parameters(part, &memory, &array),
        };
        // SAFETY: the caller has looked the addresses up and keeps the array, which is live; the
        // driver has read the structure when it returns.
        unsafe { driver.memcpy3d_async(&raw const copy, self.object.raw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_numbers_of_the_header() {
        let known = (0..=u32::from(u8::MAX)).filter_map(ElementFormat::from_wire);
        let numbers = known.map(|known| (known.wire(), format(known) as u32));
        assert_eq!(numbers.clone().count(), 8);
        assert!(numbers.into_iter().all(|(wire, driver)| wire == driver));
    }
}
