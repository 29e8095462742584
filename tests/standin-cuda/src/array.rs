//! Arrays (CUDA driver API, "Memory Management"). Elements are in the order of rows, at an address
//! that only this driver knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_mediator::backend::{ArrayShape, Element, Fault};
use causeway_protocol::message::{Status, array_flags};
use causeway_protocol::packet::RectSide;
use zerocopy::FromBytes;

use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::ledger::Counted;
use crate::memory::{allocate, release};
use crate::structures::CopySide;

/// Most elements in a row, and rows, of an array from which kernels gather.
const GATHERED_MAX: u64 = 32_768;

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct Description {
    size: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
    padding: u32,
}

/// An array of a context.
pub(crate) struct Array {
    driver: &'static Driver,
    pub(crate) context: usize,
    description: Description,
    shape: ArrayShape,
    start: u64,
    is_alive: AtomicBool,
    _counted: Counted,
}

impl Array {
    /// Where a box of `size` (bytes in a row, rows, slices) is that one side of a copy names.
    pub(crate) fn side(&self, given: &CopySide, size: [u64; 3]) -> Answer<RectSide> {
        let shape = &self.shape;
        let (origin, all) = (
            [given.x_bytes, given.y, given.z],
            [shape.row_bytes(), shape.rows(), shape.slices()],
        );
        let mut sides = origin.into_iter().zip(size).zip(all);
        let is_within = sides.all(|((from, size), all)| {
            let end = from.checked_add(size);
            end.is_some_and(|end| end <= all)
        });
        let element = u64::from(shape.element().bytes());
        let is_whole = [origin[0], size[0]]
            .iter()
            .all(|bytes| bytes.is_multiple_of(element));
        if !is_within || !is_whole {
            return Err(Code::INVALID_VALUE);
        }
        let row = origin[2] * shape.rows() + origin[1];
        Ok(RectSide {
            address: self.start + row * shape.row_bytes() + origin[0],
            pitch: shape.row_bytes() as u32,
            rows: shape.rows() as u32,
        })
    }

    /// Refuses work with an array that was destroyed: a graph may have kept it.
    pub(crate) fn check_alive(&self) -> Result<(), Fault> {
        match self.is_alive.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(Fault::new(Status::MemoryFault, "the array is destroyed")),
        }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if release(self.driver, self.start).is_err() {
            eprintln!("stand-in driver: the memory of an array is not where it was");
        }
    }
}

/// Whether a 2D array is no larger than an H200 gathers from, if it is to gather.
fn fits_gathering(description: &Description) -> bool {
    let gathers = description.flags & array_flags::GATHER != 0;
    !gathers || description.size.iter().all(|size| *size <= GATHERED_MAX)
}

/// The array of a handle.
pub(crate) fn find(driver: &Driver, handle: usize) -> Answer<Arc<Array>> {
    let found = driver.state().arrays.get(handle);
    found.ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuArray3DCreate_v2(array: Out<usize>, description: In<Description>) -> u32 {
    call_in_context(|driver, context| {
        let description = description.get()?;
        let Description {
            size,
            format,
            channels,
            flags,
            ..
        } = description;
        let shape = Element::from_wire(format, channels)
            .and_then(|element| ArrayShape::new(size, element, flags))
            .filter(|_| !array.is_null() && fits_gathering(&description))
            .ok_or(Code::INVALID_VALUE)?;
        let counted = Counted::new(driver)?;
        // It is in the handles of no context, so that the end of its context leaves it to `drop`.
        let start = allocate(driver, context.device, shape.bytes(), None)?;
        let made = Array {
            driver,
            context: context.handle,
            description,
            shape,
            start,
            is_alive: AtomicBool::new(true),
            _counted: counted,
        };
        array.set(driver.state().arrays.insert(Arc::new(made)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuArray3DGetDescriptor_v2(description: Out<Description>, array: usize) -> u32 {
    call_in_context(|driver, _| description.set(find(driver, array)?.description))
}

/// Says nothing of arrays whose memory is mapped from the beginning, and there are no others.
#[unsafe(no_mangle)]
extern "C" fn cuArrayGetMemoryRequirements(_: Out<u64>, array: usize, _device: i32) -> u32 {
    call_in_context(|driver, _| find(driver, array).and(Err(Code::INVALID_VALUE)))
}

/// Waits for all work of the context, as driver 580 does.
#[unsafe(no_mangle)]
extern "C" fn cuArrayDestroy(array: usize) -> u32 {
    call_in_context(|driver, context| {
        let removed = driver.state().arrays.remove(array);
        let removed = removed.ok_or(Code::INVALID_HANDLE)?;
        driver.await_work_of(context.handle, "an array is destroyed");
        removed.is_alive.store(false, Ordering::Release);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUDA_ARRAY3D_DESCRIPTOR;

    use super::*;

    #[test]
    fn the_description_is_as_large_as_that_of_the_header() {
        let header = size_of::<CUDA_ARRAY3D_DESCRIPTOR>();
        assert_eq!(size_of::<Description>(), header);
    }
}
