//! Copies of rectangles and boxes (`cuMemcpy2D…`, `cuMemcpy3D…`).

use super::array_copy::{self, has_array};
use super::segments::{Shape, Side};
use super::transfer::{self, Direction, NODE_ROWS_MAX};
use crate::boundary::In;
use crate::driver::{Driver, call_in_context, call_with_current_stream};
use crate::error::{Answer, Code};
use crate::stream;
use crate::structures::{Copy2d, Copy3d, CopySide, CopySide2d};
use crate::work::Work;

/// One side that is memory, in three dimensions. Returns where it begins and how far its rows are
/// apart.
pub(super) fn side(given: CopySide, shape: (u64, u64, u64)) -> Answer<Side> {
    let (width, height, _) = shape;
    let base = match given.memory_type {
        // Host; device or unified.
        1 => given.host,
        2 | 4 => given.device,
        _ => return Err(Code::INVALID_VALUE),
    };
    let pitch = match given.pitch {
        // Rows follow each other.
        0 => width,
        pitch => pitch,
    };
    let rows = match given.height {
        0 => height,
        rows => rows,
    };
    let wrong = Code::INVALID_VALUE;
    let slice = pitch.checked_mul(rows).ok_or(wrong)?;
    let to_row = pitch.checked_mul(given.y).ok_or(wrong)?;
    let to_slice = slice.checked_mul(given.z).ok_or(wrong)?;
    let start = base
        .checked_add(to_row)
        .and_then(|at| at.checked_add(to_slice));
    let start = start.and_then(|at| at.checked_add(given.x_bytes));
    let too_narrow = height > 1 && given.x_bytes.checked_add(width).ok_or(wrong)? > pitch;
    if too_narrow || base == 0 {
        return Err(wrong);
    }
    Ok(Side {
        start: start.ok_or(wrong)?,
        pitch,
        slice,
    })
}

fn shape(given: &Copy3d) -> Answer<Shape> {
    let extent = (given.width_bytes, given.height, given.depth);
    Ok(Shape {
        to: side(given.destination, extent)?,
        from: side(given.source, extent)?,
        width: extent.0,
        height: extent.1,
        depth: extent.2,
    })
}

/// Returns the work of a copy for a node of a graph.
pub(crate) fn copy_work(driver: &'static Driver, given: &Copy3d) -> Answer<Work> {
    if has_array(given) {
        let is_empty = given.width_bytes == 0 || given.height == 0 || given.depth == 0;
        return match is_empty {
            true => Err(Code::INVALID_VALUE),
            false => array_copy::work_of(driver, given),
        };
    }
    let rows = given.height.checked_mul(given.depth);
    let is_fine = rows.is_some_and(|rows| (1..=NODE_ROWS_MAX).contains(&rows));
    if given.width_bytes == 0 || !is_fine {
        return Err(Code::INVALID_VALUE);
    }
    transfer::work_of(driver, shape(given)?, direction(given))
}

fn copy_box(parameters: In<Copy3d>, stream: usize, waits: bool) -> u32 {
    match parameters.get() {
        Ok(given) => copy_given(given, stream, waits),
        // The context has precedence over arguments.
        Err(code) => call_with_current_stream(stream, |_, _| Err(code)),
    }
}

/// Copies what `given` says. If `waits` holds, the function is one that is not asynchronous.
pub(super) fn copy_given(given: Copy3d, stream: usize, waits: bool) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let extent = (given.width_bytes, given.height, given.depth);
        if extent.0 == 0 || extent.1 == 0 || extent.2 == 0 {
            return Ok(());
        }
        if has_array(&given) {
            return array_copy::copy(driver, &stream, &given, waits);
        }
        let shape = shape(&given)?;
        transfer::copy(driver, &stream, shape, direction(&given), waits)
    })
}

/// A side that is said to be the device's must be.
fn direction(given: &Copy3d) -> Direction {
    match (given.source.memory_type, given.destination.memory_type) {
        (2, 2) => Direction::DeviceToDevice,
        (_, 2) => Direction::HostToDevice,
        (2, _) => Direction::DeviceToHost,
        _ => Direction::Any,
    }
}

fn in_three(side: CopySide2d) -> CopySide {
    CopySide {
        x_bytes: side.x_bytes,
        y: side.y,
        z: 0,
        lod: 0,
        memory_type: side.memory_type,
        padding: 0,
        host: side.host,
        device: side.device,
        array: side.array,
        reserved: 0,
        pitch: side.pitch,
        height: 0,
    }
}

fn copy_rectangle(parameters: In<Copy2d>, stream: usize, waits: bool) -> u32 {
    let given = match parameters.get() {
        Ok(given) => given,
        // The context has precedence over arguments.
        Err(code) => return call_in_context(|_, _| Err(code)),
    };
    let in_three = Copy3d {
        source: in_three(given.source),
        destination: in_three(given.destination),
        width_bytes: given.width_bytes,
        height: given.height,
        depth: 1,
    };
    copy_given(in_three, stream, waits)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2D_v2(parameters: In<Copy2d>) -> u32 {
    copy_rectangle(parameters, 0, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DUnaligned_v2(parameters: In<Copy2d>) -> u32 {
    copy_rectangle(parameters, 0, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(parameters: In<Copy2d>, stream: usize) -> u32 {
    copy_rectangle(parameters, stream, false)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3D_v2(parameters: In<Copy3d>) -> u32 {
    copy_box(parameters, 0, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DAsync_v2(parameters: In<Copy3d>, stream: usize) -> u32 {
    copy_box(parameters, stream, false)
}

/// Addresses tell their devices, so which context is which does not matter.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DPeer(parameters: In<Copy3d>) -> u32 {
    copy_box(parameters, 0, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DPeerAsync(parameters: In<Copy3d>, stream: usize) -> u32 {
    copy_box(parameters, stream, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pitch: u64, height: u64) -> CopySide {
        CopySide {
            x_bytes: 3,
            y: 2,
            z: 1,
            lod: 0,
            memory_type: 2,
            padding: 0,
            host: 0,
            device: 0x1_0000,
            array: 0,
            reserved: 0,
            pitch,
            height,
        }
    }

    #[test]
    fn a_side_begins_at_its_column_row_and_slice() {
        let found = side(given(64, 10), (16, 4, 2)).unwrap();
        assert_eq!(found.start, 0x1_0000 + 3 + 2 * 64 + 640);
        assert_eq!((found.pitch, found.slice), (64, 640));
    }

    #[test]
    fn wrong_sides_are_refused() {
        let wrong = Some(Code::INVALID_VALUE);
        let refusal = |side: CopySide| super::side(side, (16, 4, 2)).err();
        assert_eq!(refusal(given(18, 10)), wrong, "rows overlap");
        assert_eq!(refusal(given(u64::MAX, 10)), wrong);
        let unknown = CopySide {
            memory_type: 7,
            ..given(64, 10)
        };
        assert_eq!(refusal(unknown), wrong);
    }
}
