//! Copies of rectangles to and from arrays (CUDA Runtime API, "Memory Management"). Places in
//! arrays are bytes in a row, and rows.

use causeway_cuda_abi::error::{Answer, Code};
use causeway_cuda_abi::structures::{Copy2d, CopySide2d};

use crate::copy::{Direction, check_pitch};
use crate::driver::driver;
use crate::error::INVALID_DIRECTION;
use crate::shapes::{own, side_2d, side_2d_of_array};
use crate::symbol::{from_device, to_device};
use crate::table::calls;

calls! {
    fn cudaMemcpy2DToArray(array: usize, x: usize, y: usize, from: usize, pitch: usize,
                           width: usize, height: usize, kind: u32)
        => copy(&[to_array(array, x, y, from, pitch, width, height, kind)?], When::Common);
    fn cudaMemcpy2DToArray_ptds(array: usize, x: usize, y: usize, from: usize, pitch: usize,
                                width: usize, height: usize, kind: u32)
        => copy(&[to_array(array, x, y, from, pitch, width, height, kind)?], When::Own);
    fn cudaMemcpy2DToArrayAsync(array: usize, x: usize, y: usize, from: usize, pitch: usize,
                                width: usize, height: usize, kind: u32, stream: usize)
        / cudaMemcpy2DToArrayAsync_ptsz(array, x, y, from, pitch, width, height, kind, own(stream))
        => copy(&[to_array(array, x, y, from, pitch, width, height, kind)?], When::In(stream));
    fn cudaMemcpy2DFromArray(to: usize, pitch: usize, array: usize, x: usize, y: usize,
                             width: usize, height: usize, kind: u32)
        => copy(&[from_array(to, pitch, array, x, y, width, height, kind)?], When::Common);
    fn cudaMemcpy2DFromArray_ptds(to: usize, pitch: usize, array: usize, x: usize, y: usize,
                                  width: usize, height: usize, kind: u32)
        => copy(&[from_array(to, pitch, array, x, y, width, height, kind)?], When::Own);
    fn cudaMemcpy2DFromArrayAsync(to: usize, pitch: usize, array: usize, x: usize, y: usize,
                                  width: usize, height: usize, kind: u32, stream: usize)
        / cudaMemcpy2DFromArrayAsync_ptsz(to, pitch, array, x, y, width, height, kind, own(stream))
        => copy(&[from_array(to, pitch, array, x, y, width, height, kind)?], When::In(stream));
    fn cudaMemcpy2DArrayToArray(to: usize, to_x: usize, to_y: usize, from: usize, from_x: usize,
                                from_y: usize, width: usize, height: usize, kind: u32) => {
        between_arrays(kind)?;
        let to = side_of_array(to, to_x, to_y)?;
        let from = side_of_array(from, from_x, from_y)?;
        copy(&[rectangle(to, from, width, height)], When::Common)
    };
    fn cudaMemcpy2DArrayToArray_ptds(to: usize, to_x: usize, to_y: usize, from: usize,
                                     from_x: usize, from_y: usize, width: usize, height: usize,
                                     kind: u32) => {
        between_arrays(kind)?;
        let to = side_of_array(to, to_x, to_y)?;
        let from = side_of_array(from, from_x, from_y)?;
        copy(&[rectangle(to, from, width, height)], When::Own)
    };
}

/// In which stream copies are made, and whether the call waits for them.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// In the common default stream. The call waits.
    Common,
    /// In the thread's own default stream. The call waits.
    Own,
    /// In this stream.
    In(usize),
}

/// Makes copies, one after the other.
pub fn copy(copies: &[Copy2d], when: When) -> Answer {
    copies.iter().try_for_each(|copy| {
        let copy = std::ptr::from_ref(copy);
        match when {
            When::Common => driver!(cuMemcpy2DUnaligned_v2(copy)),
            When::Own => driver!(cuMemcpy2DAsync_v2(copy, own(0))),
            When::In(stream) => driver!(cuMemcpy2DAsync_v2(copy, stream)),
        }
    })?;
    match when {
        When::Own => driver!(cuStreamSynchronize(own(0))),
        When::Common | When::In(_) => Ok(()),
    }
}

/// Checks the direction of a copy between arrays.
pub fn between_arrays(kind: u32) -> Answer {
    match Direction::of(kind)? {
        Direction::OnDevice | Direction::ByAddress => Ok(()),
        _ => Err(INVALID_DIRECTION),
    }
}

fn side_of_array(array: usize, x: usize, y: usize) -> Answer<CopySide2d> {
    if array == 0 {
        return Err(Code::INVALID_HANDLE);
    }
    Ok(side_2d_of_array(array, x, y))
}

pub fn rectangle(to: CopySide2d, from: CopySide2d, width: usize, height: usize) -> Copy2d {
    Copy2d {
        source: from,
        destination: to,
        width_bytes: width as u64,
        height: height as u64,
    }
}

fn to_array(
    array: usize,
    x: usize,
    y: usize,
    from: usize,
    pitch: usize,
    width: usize,
    height: usize,
    kind: u32,
) -> Answer<Copy2d> {
    to_device(kind)?;
    check_pitch(pitch, width, height)?;
    let to = side_of_array(array, x, y)?;
    Ok(rectangle(to, side_2d(from, pitch), width, height))
}

fn from_array(
    to: usize,
    pitch: usize,
    array: usize,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: u32,
) -> Answer<Copy2d> {
    from_device(kind)?;
    check_pitch(pitch, width, height)?;
    let from = side_of_array(array, x, y)?;
    Ok(rectangle(side_2d(to, pitch), from, width, height))
}
