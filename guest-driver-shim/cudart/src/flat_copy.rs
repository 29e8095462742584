//! Copies to and from arrays that go on in the next row where one ends (CUDA Runtime API, "Memory
//! Management [DEPRECATED]"). Places in arrays are bytes in a row, and rows.

use causeway_cuda_abi::error::{Answer, Code};
use causeway_cuda_abi::structures::{Copy2d, CopySide2d};

use crate::array::rows_of;
use crate::array_copy::{When, between_arrays, copy, rectangle};
use crate::shapes::{own, side_2d, side_2d_of_array};
use crate::symbol::{from_device, to_device};
use crate::table::calls;

calls! {
    fn cudaMemcpyToArray(array: usize, x: usize, y: usize, from: usize, bytes: usize, kind: u32)
        => copy(&flat_to_array(array, x, y, from, bytes, kind)?, When::Common);
    fn cudaMemcpyToArray_ptds(array: usize, x: usize, y: usize, from: usize, bytes: usize,
                              kind: u32)
        => copy(&flat_to_array(array, x, y, from, bytes, kind)?, When::Own);
    fn cudaMemcpyToArrayAsync(array: usize, x: usize, y: usize, from: usize, bytes: usize,
                              kind: u32, stream: usize)
        / cudaMemcpyToArrayAsync_ptsz(array, x, y, from, bytes, kind, own(stream))
        => copy(&flat_to_array(array, x, y, from, bytes, kind)?, When::In(stream));
    fn cudaMemcpyFromArray(to: usize, array: usize, x: usize, y: usize, bytes: usize, kind: u32)
        => copy(&flat_from_array(to, array, x, y, bytes, kind)?, When::Common);
    fn cudaMemcpyFromArray_ptds(to: usize, array: usize, x: usize, y: usize, bytes: usize,
                                kind: u32)
        => copy(&flat_from_array(to, array, x, y, bytes, kind)?, When::Own);
    fn cudaMemcpyFromArrayAsync(to: usize, array: usize, x: usize, y: usize, bytes: usize,
                                kind: u32, stream: usize)
        / cudaMemcpyFromArrayAsync_ptsz(to, array, x, y, bytes, kind, own(stream))
        => copy(&flat_from_array(to, array, x, y, bytes, kind)?, When::In(stream));
    fn cudaMemcpyArrayToArray(to: usize, to_x: usize, to_y: usize, from: usize, from_x: usize,
                              from_y: usize, bytes: usize, kind: u32) => {
        between_arrays(kind)?;
        let to = Side::of_array(to, to_x, to_y, bytes)?;
        copy(&pieces(to, Side::of_array(from, from_x, from_y, bytes)?, bytes), When::Common)
    };
    fn cudaMemcpyArrayToArray_ptds(to: usize, to_x: usize, to_y: usize, from: usize,
                                   from_x: usize, from_y: usize, bytes: usize, kind: u32) => {
        between_arrays(kind)?;
        let to = Side::of_array(to, to_x, to_y, bytes)?;
        copy(&pieces(to, Side::of_array(from, from_x, from_y, bytes)?, bytes), When::Own)
    };
}

fn flat_to_array(
    array: usize,
    x: usize,
    y: usize,
    from: usize,
    bytes: usize,
    kind: u32,
) -> Answer<Vec<Copy2d>> {
    to_device(kind)?;
    let to = Side::of_array(array, x, y, bytes)?;
    Ok(pieces(to, Side::Memory(from), bytes))
}

fn flat_from_array(
    to: usize,
    array: usize,
    x: usize,
    y: usize,
    bytes: usize,
    kind: u32,
) -> Answer<Vec<Copy2d>> {
    from_device(kind)?;
    let from = Side::of_array(array, x, y, bytes)?;
    Ok(pieces(Side::Memory(to), from, bytes))
}

/// Where a copy goes on that is not a rectangle.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// Memory at this address.
    Memory(usize),
    /// An array whose rows have `row` bytes, which is not 0. `x` is less.
    Array {
        array: usize,
        x: usize,
        y: usize,
        row: usize,
    },
}

impl Side {
    /// A place in an array behind which it has `bytes` bytes.
    ///
    /// # Errors
    /// It has less, or there is no such array.
    fn of_array(array: usize, x: usize, y: usize, bytes: usize) -> Answer<Self> {
        let (row, rows) = rows_of(array)?;
        let begin = y.checked_mul(row).and_then(|begin| begin.checked_add(x));
        let end = begin.and_then(|begin| begin.checked_add(bytes));
        match (end, row.checked_mul(rows)) {
            (Some(end), Some(all)) if x <= row && row > 0 && end <= all => {
                Ok(Self::Array { array, x, y, row }.behind(0))
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// The place `bytes` bytes behind this one.
    fn behind(self, bytes: usize) -> Self {
        match self {
            Self::Memory(address) => Self::Memory(address.wrapping_add(bytes)),
            Self::Array { array, x, y, row } => Self::Array {
                array,
                x: (x + bytes) % row,
                y: y + (x + bytes) / row,
                row,
            },
        }
    }

    /// Bytes up to the end of the row; none if there is no end.
    fn rest(self) -> Option<usize> {
        match self {
            Self::Memory(_) => None,
            Self::Array { x, row, .. } => Some(row - x),
        }
    }

    /// Whether rectangles of rows of this size can begin here.
    fn has_rows_of(self, bytes: usize) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Array { x, row, .. } => x == 0 && row == bytes,
        }
    }

    /// The driver's description for a rectangle of rows of `width` bytes.
    fn of_driver(self, width: usize) -> CopySide2d {
        match self {
            Self::Memory(address) => side_2d(address, width),
            Self::Array { array, x, y, .. } => side_2d_of_array(array, x, y),
        }
    }
}

/// Returns the rectangles of which a copy consists: as many whole rows as possible, and parts of
/// rows before and behind them.
fn pieces(mut to: Side, mut from: Side, bytes: usize) -> Vec<Copy2d> {
    let mut pieces = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let in_row = [to.rest(), from.rest()].into_iter().flatten().min();
        let width = in_row.unwrap_or(left).min(left);
        let height = match to.has_rows_of(width) && from.has_rows_of(width) {
            true => left / width,
            false => 1,
        };
        let sides = (to.of_driver(width), from.of_driver(width));
        pieces.push(rectangle(sides.0, sides.1, width, height));
        let done = width * height;
        (to, from, left) = (to.behind(done), from.behind(done), left - done);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: usize = 0x1000;

    fn array(x: usize, y: usize, row: usize) -> Side {
        Side::Array {
            array: 1,
            x,
            y,
            row,
        }
    }

    /// Where each piece begins in the array of the destination, its size, and where it begins in
    /// memory.
    fn to_array(x: usize, y: usize, bytes: usize) -> Vec<[u64; 5]> {
        let found = pieces(array(x, y, 100), Side::Memory(MEMORY), bytes);
        let numbers = |it: &Copy2d| {
            let (to, from) = (it.destination, it.source.device - MEMORY as u64);
            [to.x_bytes, to.y, it.width_bytes, it.height, from]
        };
        found.iter().map(numbers).collect()
    }

    #[test]
    fn a_copy_consists_of_the_rest_of_a_row_whole_rows_and_a_part() {
        assert_eq!(to_array(20, 3, 50), [[20, 3, 50, 1, 0]]);
        assert_eq!(to_array(0, 3, 300), [[0, 3, 100, 3, 0]]);
        let three = [[20, 3, 80, 1, 0], [0, 4, 100, 2, 80], [0, 6, 7, 1, 280]];
        assert_eq!(to_array(20, 3, 287), three);
        assert_eq!(to_array(20, 3, 0), [[0; 5]; 0]);
        let whole = pieces(array(0, 0, 100), array(0, 5, 100), 250);
        assert_eq!(whole.len(), 2);
        assert_eq!((whole[0].width_bytes, whole[0].height), (100, 2));
    }

    /// Every byte is copied once, in order, and no piece leaves a row.
    #[test]
    fn pieces_between_arrays_of_other_widths_cover_all() {
        for (x, from_x, bytes) in [(0, 0, 700), (8, 16, 1000), (99, 0, 333), (5, 63, 64)] {
            let (mut to, mut from) = (x, from_x);
            for it in pieces(array(x, 0, 100), array(from_x, 0, 64), bytes) {
                assert_eq!(it.destination.y * 100 + it.destination.x_bytes, to as u64);
                assert_eq!(it.source.y * 64 + it.source.x_bytes, from as u64);
                assert_eq!(it.height, 1);
                assert!(it.destination.x_bytes + it.width_bytes <= 100);
                assert!(it.source.x_bytes + it.width_bytes <= 64);
                to += it.width_bytes as usize;
                from += it.width_bytes as usize;
            }
            assert_eq!((to, from), (x + bytes, from_x + bytes));
        }
    }
}
