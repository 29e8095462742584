//! Fills fresh arrays with zeros: their memory still holds what its last user left there.

use std::time::Duration;

use causeway_mediator::backend::ArrayShape;
use causeway_protocol::packet::{ArrayBox, RectSide};

use super::with_room;
use crate::driver::{ArrayObject, CudaError, Event, MappedRange, Stream};
use crate::space::state::SpaceState;

/// Most memory of zeros from which arrays are filled, in bytes, if a row has no more.
const ZERO_BYTES_MAX: u64 = 8 << 20;
/// Alignment of that memory: any.
const ALIGNMENT: u64 = 0;
/// Copies after which the GPU is waited for: the driver takes about a thousand at a time, and would
/// then wait itself.
const COPIES_MAX: usize = 128;
/// How much longer the copies may take than alone before the work of guests is held up for them.
const PATIENCE: Duration = Duration::from_millis(2);

/// What a fill works with, which must not end before the copies.
struct Fill {
    zeros: MappedRange,
    stream: Stream,
    event: Event,
}

/// Fills all elements of `array` with zeros, and returns true when that is done. Returns false if
/// the context was lost meanwhile. The driver destroys `array` only after the copies.
///
/// # Errors
/// The driver's error.
pub(super) fn fill(
    state: &SpaceState,
    array: &ArrayObject,
    shape: &ArrayShape,
) -> Result<bool, CudaError> {
    let context = &state.maker.context;
    let bytes = shape.bytes().min(ZERO_BYTES_MAX).max(shape.row_bytes());
    let zeros = || MappedRange::allocate(context, bytes, ALIGNMENT);
    let fill = Fill {
        zeros: with_room(&state.gpu, zeros)?,
        stream: state.maker.stream()?,
        event: Event::new(context)?,
    };
    let copied = fill.copy(state, array, (shape, bytes));
    // Also if a copy was refused, others may be under way.
    let settled = fill.settle(state);
    if !matches!(settled, Ok(true)) {
        std::mem::forget(fill);
        return settled;
    }
    copied
}

impl Fill {
    /// Puts copies of up to `bytes` bytes of zeros into the stream. Returns false if the context
    /// was lost meanwhile.
    fn copy(
        &self,
        state: &SpaceState,
        array: &ArrayObject,
        (shape, bytes): (&ArrayShape, u64),
    ) -> Result<bool, CudaError> {
        let whole = bytes.next_multiple_of(4);
        self.stream.fill(self.zeros.address(), whole, 0, 4)?;
        for (number, part) in pieces(shape, bytes).enumerate() {
            if number % COPIES_MAX == COPIES_MAX - 1 && !self.settle(state)? {
                return Ok(false);
            }
            let part = part.of(shape, self.zeros.address());
            self.stream.copy_array(array, &part, true)?;
        }
        Ok(true)
    }

    /// Waits until the GPU has done all copies; returns false if the context was lost meanwhile.
    fn settle(&self, state: &SpaceState) -> Result<bool, CudaError> {
        self.stream.record(&self.event)?;
        state.wait(&self.event, PATIENCE)
    }
}

/// Whole rows of an array: the first row and slice, and the number of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    row: u64,
    slice: u64,
    rows: u64,
    slices: u64,
}

impl Piece {
    /// Returns the copy of zeros at `address` to this piece. All sizes of arrays fit 32 bits.
    fn of(self, shape: &ArrayShape, address: u64) -> ArrayBox {
        let width = shape.row_bytes() as u32;
        let memory = RectSide {
            address,
            pitch: width,
            rows: self.rows as u32,
        };
        ArrayBox {
            memory,
            origin: [0, self.row as u32, self.slice as u32],
            width,
            height: self.rows as u32,
            depth: self.slices as u32,
        }
    }
}

/// Returns pieces of at most `bytes` bytes, which are at least a row: all of an array.
fn pieces(shape: &ArrayShape, bytes: u64) -> Box<dyn Iterator<Item = Piece>> {
    let (rows, slices) = (shape.rows(), shape.slices());
    let rows_max = bytes / shape.row_bytes();
    if let slices_max @ 1.. = rows_max / rows {
        let starts = (0..slices).step_by(slices_max as usize);
        return Box::new(starts.map(move |slice| Piece {
            row: 0,
            slice,
            rows,
            slices: slices_max.min(slices - slice),
        }));
    }
    let rows_max = rows_max.max(1);
    let starts = move |slice| {
        let starts = (0..rows).step_by(rows_max as usize);
        starts.map(move |row| Piece {
            row,
            slice,
            rows: rows_max.min(rows - row),
            slices: 1,
        })
    };
    Box::new((0..slices).flat_map(starts))
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::Element;

    use super::*;

    #[test]
    fn pieces_are_all_rows_once_and_fit_the_zeros() {
        let element = Element::from_wire(0x20, 4).unwrap();
        for (size, bytes) in [
            ([10, 0, 0], 160),
            ([10, 7, 0], 160),
            ([10, 7, 0], 500),
            ([10, 7, 5], 10_000),
            ([10, 7, 5], 2 * 7 * 160),
            ([10, 7, 5], 3 * 160 + 1),
        ] {
            let shape = ArrayShape::new(size, element, 0).unwrap();
            let mut rows = Vec::new();
            for piece in pieces(&shape, bytes) {
                assert!(piece.of(&shape, 0x1000).bytes() <= bytes);
                let slices = piece.slice..piece.slice + piece.slices;
                rows.extend(slices.flat_map(|slice| {
                    (piece.row..piece.row + piece.rows).map(move |row| (slice, row))
                }));
            }
            let all = 0..shape.slices();
            let all = all.flat_map(|slice| (0..shape.rows()).map(move |row| (slice, row)));
            assert!(rows.iter().copied().eq(all), "{size:?} {bytes}");
        }
    }
}
