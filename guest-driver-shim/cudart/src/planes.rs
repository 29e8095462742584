//! Copies of planes between memory and arrays: the runtime's parameters and the driver's
//! (`CUDA_MEMCPY3D`). If a side is an array, the runtime counts its elements where the driver
//! counts bytes, for places in memory, too: the manual says that these are bytes, but NVIDIA's
//! runtime counts elements.

use causeway_cuda_abi::error::{Answer, Code};
use causeway_cuda_abi::structures::{Copy3d, CopySide};

use crate::array::element_bytes;
use crate::context::primary;
use crate::copy::Direction;
use crate::shapes::{
    ARRAY, Copy3dParameters, Extent, HOST, PeerCopyParameters, Pitched, Position, side_3d,
    side_of_array,
};

/// Size of the elements of one side in bytes; none for memory.
type Elements = Option<usize>;

/// A copy for the driver.
pub fn planes(it: Copy3dParameters) -> Answer<Copy3d> {
    // In what direction, the driver finds by the addresses. An array is on the device.
    Direction::of(it.kind)?;
    of_elements(it, elements_of(it.from_array)?, elements_of(it.to_array)?)
}

/// A copy between devices, which the driver knows by contexts in place of reserved words.
pub fn planes_of_peers(it: PeerCopyParameters) -> Answer<Copy3d> {
    let copy = planes(Copy3dParameters {
        from_array: it.from_array,
        from_place: it.from_place,
        from: it.from,
        to_array: it.to_array,
        to_place: it.to_place,
        to: it.to,
        extent: it.extent,
        kind: Direction::BY_ADDRESS,
        padding: 0,
    })?;
    let with_context = |side, device| {
        Ok(CopySide {
            reserved: primary(device)? as u64,
            ..side
        })
    };
    Ok(Copy3d {
        source: with_context(copy.source, it.from_device)?,
        destination: with_context(copy.destination, it.to_device)?,
        ..copy
    })
}

/// Returns the runtime's parameters of a copy.
pub fn parameters_of(copy: &Copy3d) -> Answer<Copy3dParameters> {
    let elements = |side: &CopySide| match side.memory_type {
        ARRAY => elements_of(side.array as usize),
        _ => Ok(None),
    };
    let element = match elements(&copy.source)? {
        None => elements(&copy.destination)?.unwrap_or(1),
        Some(bytes) => bytes,
    };
    let (from_array, from_place, from) = side_of(&copy.source, element);
    let (to_array, to_place, to) = side_of(&copy.destination, element);
    Ok(Copy3dParameters {
        from_array,
        from_place,
        from,
        to_array,
        to_place,
        to,
        extent: Extent {
            width: copy.width_bytes as usize / element,
            height: copy.height as usize,
            depth: copy.depth as usize,
        },
        kind: Direction::BY_ADDRESS,
        padding: 0,
    })
}

fn elements_of(array: usize) -> Answer<Elements> {
    match array {
        0 => Ok(None),
        _ => element_bytes(array).map(Some),
    }
}

/// A copy for the driver between sides with elements of these sizes.
fn of_elements(
    it: Copy3dParameters,
    of_source: Elements,
    of_destination: Elements,
) -> Answer<Copy3d> {
    let element = match (of_source, of_destination) {
        (Some(from), Some(to)) if from != to => return Err(Code::INVALID_VALUE),
        (None, None) => 1,
        (Some(bytes), _) | (None, Some(bytes)) => bytes,
    };
    Ok(Copy3d {
        source: side(it.from_array, it.from, it.from_place, element)?,
        destination: side(it.to_array, it.to, it.to_place, element)?,
        width_bytes: product(it.extent.width, element)?,
        height: it.extent.height as u64,
        depth: it.extent.depth as u64,
    })
}

/// One side for the driver, whose place counts elements of this size. A program may not name an
/// array and memory for the same side.
fn side(array: usize, memory: Pitched, place: Position, element: usize) -> Answer<CopySide> {
    let side = match (array, memory.address) {
        (0, _) => side_3d(memory, place),
        (_, 0) => side_of_array(array, place),
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(CopySide {
        x_bytes: product(place.x, element)?,
        ..side
    })
}

fn product(count: usize, bytes: usize) -> Answer<u64> {
    let product = count.checked_mul(bytes).ok_or(Code::INVALID_VALUE)?;
    Ok(product as u64)
}

/// One side for the program: the array, where in it, and memory in rows.
fn side_of(side: &CopySide, element: usize) -> (usize, Position, Pitched) {
    let place = Position {
        x: side.x_bytes as usize / element,
        y: side.y as usize,
        z: side.z as usize,
    };
    let address = match side.memory_type {
        ARRAY => return (side.array as usize, place, Pitched::default()),
        HOST => side.host,
        _ => side.device,
    };
    let memory = Pitched {
        address: address as usize,
        pitch: side.pitch as usize,
        row_bytes: side.pitch as usize,
        rows: side.height as usize,
    };
    (0, place, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_ADDRESS: usize = 0x1000;
    const HANDLE: usize = 0x70;

    /// From memory to an array.
    fn parameters() -> Copy3dParameters {
        Copy3dParameters {
            from: Pitched {
                address: HOST_ADDRESS,
                pitch: 256,
                row_bytes: 200,
                rows: 9,
            },
            from_place: Position { x: 3, y: 1, z: 2 },
            to_array: HANDLE,
            to_place: Position { x: 5, y: 6, z: 7 },
            extent: Extent {
                width: 4,
                height: 2,
                depth: 1,
            },
            kind: 1,
            ..Copy3dParameters::default()
        }
    }

    #[test]
    fn elements_become_bytes_on_both_sides_of_an_array() {
        let copy = of_elements(parameters(), None, Some(8)).unwrap();
        assert_eq!((copy.source.x_bytes, copy.source.y), (24, 1));
        assert_eq!((copy.source.pitch, copy.source.height), (256, 9));
        let to = copy.destination;
        assert_eq!((to.memory_type, to.array), (ARRAY, HANDLE as u64));
        assert_eq!((to.x_bytes, to.y, to.z), (40, 6, 7));
        assert_eq!((copy.width_bytes, copy.height, copy.depth), (32, 2, 1));
        let (array, place, memory) = side_of(&to, 8);
        assert_eq!((array, place.x, memory.address), (HANDLE, 5, 0));
        let copy = of_elements(parameters(), None, None).unwrap();
        assert_eq!((copy.source.x_bytes, copy.width_bytes), (3, 4));
    }

    #[test]
    fn a_side_is_one_thing_and_elements_of_both_sides_are_as_large() {
        let mut both = parameters();
        both.to = both.from;
        assert!(of_elements(both, None, Some(4)).is_err());
        let mut arrays = parameters();
        (arrays.from_array, arrays.from) = (1, Pitched::default());
        assert!(of_elements(arrays, Some(4), Some(4)).is_ok());
        assert!(of_elements(arrays, Some(4), Some(8)).is_err());
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let mut wide = parameters();
        wide.extent.width = usize::MAX / 2;
        assert!(of_elements(wide, None, Some(4)).is_err());
        let mut far = parameters();
        far.to_place.x = usize::MAX / 2;
        assert!(of_elements(far, None, Some(4)).is_err());
    }
}
