//! Copies and fills of rows (CUDA driver API, "Memory Management": `cuMemcpy3D…`, `cuMemsetD2D…`),
//! between addresses that the device reaches, and arrays.

use std::sync::Arc;

use causeway_mediator::backend::{CopyShape, FillShape, MemoryWork};
use causeway_protocol::packet::RectSide;

use crate::array::{self, Array};
use crate::boundary::In;
use crate::context::Context;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::memory::Reached;
use crate::stream;
use crate::structures::{Copy3d, CopySide};
use crate::work::Work;

/// `CU_MEMORYTYPE_ARRAY`
const ARRAY: u32 = 3;

/// One side. Offsets within it are not supported.
fn side(given: &CopySide) -> Answer<RectSide> {
    let number = |value: u64| u32::try_from(value).map_err(|_| Code::INVALID_VALUE);
    let has_offset = given.x_bytes != 0 || given.y != 0 || given.z != 0;
    // Device or unified.
    if has_offset || !matches!(given.memory_type, 2 | 4) {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(RectSide {
        address: given.device,
        pitch: number(given.pitch)?,
        rows: number(given.height)?,
    })
}

/// Where the device reaches a range.
fn reached(driver: &Driver, context: &Context, address: u64, bytes: u64) -> Answer<u64> {
    match driver.reach(context.device, address, bytes)? {
        Reached::Device(at) => Ok(at),
        Reached::Pageable(_) => Err(Code::NOT_SUPPORTED),
    }
}

/// The rows that a call asks for.
pub(crate) fn shape_of(given: &Copy3d) -> Answer<CopyShape> {
    let number = |value: u64| u32::try_from(value).map_err(|_| Code::INVALID_VALUE);
    Ok(CopyShape {
        destination: side(&given.destination)?,
        source: side(&given.source)?,
        width: given.width_bytes,
        height: number(given.height)?,
        depth: number(given.depth)?,
    })
}

/// One side, and the array that it is in.
fn side_or_array(
    driver: &Driver,
    given: &CopySide,
    size: [u64; 3],
) -> Answer<(RectSide, Option<Arc<Array>>)> {
    if given.memory_type != ARRAY {
        return Ok((side(given)?, None));
    }
    let array = array::find(driver, given.array as usize)?;
    Ok((array.side(given, size)?, Some(array)))
}

fn copy(driver: &Driver, context: &Context, given: &Copy3d) -> Answer<Work> {
    let number = |value: u64| u32::try_from(value).map_err(|_| Code::INVALID_VALUE);
    let size = [given.width_bytes, given.height, given.depth];
    let (destination, into) = side_or_array(driver, &given.destination, size)?;
    let (source, out_of) = side_or_array(driver, &given.source, size)?;
    let mut shape = CopyShape {
        destination,
        source,
        width: given.width_bytes,
        height: number(given.height)?,
        depth: number(given.depth)?,
    };
    let [to, from] = shape.extents().ok_or(Code::INVALID_VALUE)?;
    let (destination, source) = (&mut shape.destination, &mut shape.source);
    destination.address = reached(driver, context, destination.address, to)?;
    source.address = reached(driver, context, source.address, from)?;
    let work = MemoryWork::CopyRect(shape);
    let arrays: Vec<_> = into.into_iter().chain(out_of).collect();
    Ok(match arrays.is_empty() {
        true => Work::Rows(work),
        false => Work::Arrays(arrays, work),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DAsync_v2(parameters: In<Copy3d>, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let given = parameters.get()?;
        let stream = stream::find(driver, context, stream)?;
        stream
            .submit(driver, copy(driver, context, &given)?)
            .map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3D_v2(parameters: In<Copy3d>) -> u32 {
    call_in_context(|driver, context| {
        let work = copy(driver, context, &parameters.get()?)?;
        context.default_stream.submit(driver, work)?.wait();
        driver.check_sticky()
    })
}

fn fill(mut shape: FillShape, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let places = [shape.destination, u64::from(shape.pitch)];
        let is_aligned = |at: &u64| at.is_multiple_of(u64::from(shape.element));
        let extent = shape.extent().filter(|_| places.iter().all(is_aligned));
        let extent = extent.ok_or(Code::INVALID_VALUE)?;
        shape.destination = reached(driver, context, shape.destination, extent)?;
        let work = Work::Rows(MemoryWork::FillRect(shape));
        stream.submit(driver, work).map(drop)
    })
}

/// The rows that a call asks for. Numbers that do not fit are of no rows that a packet may have.
fn rows(
    destination: u64,
    (pitch, width, height): (usize, usize, usize),
    element: u32,
) -> FillShape {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    FillShape {
        destination,
        pitch: number(pitch),
        height: number(height),
        width: (width as u64).saturating_mul(u64::from(element)),
        pattern: 0,
        element,
    }
}

macro_rules! fills {
    ($($name:ident: $type:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(
                destination: u64,
                pitch: usize,
                value: $type,
                width: usize,
                height: usize,
                stream: usize,
            ) -> u32 {
                let shape = rows(destination, (pitch, width, height), <$type>::BITS / 8);
                fill(FillShape { pattern: u32::from(value), ..shape }, stream)
            }
        )*
    };
}

fills! {
    cuMemsetD2D8Async: u8;
    cuMemsetD2D16Async: u16;
    cuMemsetD2D32Async: u32;
}
