//! Which arrays and which memory a copy is between, from what a program says.

use std::sync::Arc;

use causeway_shim_linux::shim::ArrayDirection;

use super::{ArraysCopy, MemoryCopy, span};
use crate::array::{self, Array};
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::memory::segments::{Shape, Side};
use crate::memory::{Place, rectangle};
use crate::structures::{Copy3d, CopySide};

/// `CU_MEMORYTYPE_DEVICE` and `CU_MEMORYTYPE_ARRAY`
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

/// What a copy is between.
pub(super) enum Ends {
    /// An array and memory, which is such a place.
    Memory(MemoryCopy, Place),
    Arrays(ArraysCopy),
}

/// Returns whether a side of a copy is an array.
pub(in crate::memory) const fn has_array(given: &Copy3d) -> bool {
    given.source.memory_type == ARRAY || given.destination.memory_type == ARRAY
}

impl Ends {
    /// Checks a copy that has an array and is not empty.
    pub(super) fn of(driver: &'static Driver, given: &Copy3d) -> Answer<Self> {
        array::check_supported(driver)?;
        let size = [given.width_bytes, given.height, given.depth];
        let is_array = |side: &CopySide| side.memory_type == ARRAY;
        let (to, from) = (&given.destination, &given.source);
        match (is_array(to), is_array(from)) {
            (true, true) => Self::arrays(driver, to, from, size),
            (true, false) => Self::memory(driver, to, from, ArrayDirection::Into, size),
            (false, _) => Self::memory(driver, from, to, ArrayDirection::OutOf, size),
        }
    }

    fn arrays(
        driver: &'static Driver,
        to: &CopySide,
        from: &CopySide,
        size: [u64; 3],
    ) -> Answer<Self> {
        let (to_array, to) = of_array(driver, to, size)?;
        let (from_array, from) = of_array(driver, from, size)?;
        if to_array.elements.bytes != from_array.elements.bytes {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Self::Arrays(ArraysCopy {
            to: to_array,
            from: from_array,
            shape: shape(to, from, size),
        }))
    }

    /// A copy between the side that is an array and the one that is memory.
    fn memory(
        driver: &'static Driver,
        array: &CopySide,
        memory: &CopySide,
        direction: ArrayDirection,
        size: [u64; 3],
    ) -> Answer<Self> {
        let (array, in_array) = of_array(driver, array, size)?;
        let (in_memory, place) = of_memory(driver, memory, size)?;
        let shape = match direction {
            ArrayDirection::Into => shape(in_array, in_memory, size),
            ArrayDirection::OutOf => shape(in_memory, in_array, size),
        };
        let copy = MemoryCopy {
            array,
            direction,
            shape,
        };
        Ok(Self::Memory(copy, place))
    }
}

pub(super) const fn shape(to: Side, from: Side, [width, height, depth]: [u64; 3]) -> Shape {
    Shape {
        to,
        from,
        width,
        height,
        depth,
    }
}

/// Returns the array of a side, and the side.
fn of_array(
    driver: &'static Driver,
    given: &CopySide,
    size: [u64; 3],
) -> Answer<(Arc<Array>, Side)> {
    let array = array::find_on(driver, given.array)?;
    // No array is mipmapped.
    if given.lod != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let origin = [given.x_bytes, given.y, given.z];
    array.elements.check(origin, size)?;
    let elements = &array.elements;
    let side = Side {
        start: elements.offset(origin),
        pitch: elements.row,
        slice: elements.row * elements.rows,
    };
    Ok((array, side))
}

/// Returns a side that is memory, and what that is.
fn of_memory(driver: &Driver, given: &CopySide, size: [u64; 3]) -> Answer<(Side, Place)> {
    let [width, height, depth] = size;
    let side = rectangle::side(*given, (width, height, depth))?;
    let both = shape(side, side, size);
    // Refuses rows that overlap or have no address.
    both.checked().ok_or(Code::INVALID_VALUE)?;
    let place = driver.memory.place_rows(side.start, span(&both, side))?;
    match place {
        Place::Cpu(_) if given.memory_type == DEVICE => Err(Code::INVALID_VALUE),
        place => Ok((side, place)),
    }
}
