//! Copies between memory and arrays, whose rows lie in memory one behind the other.

use causeway_mediator::backend::{ArrayCopy, CopyShape};
use causeway_protocol::packet::RectSide;

/// Returns the copy of rows that does `copy`, whose array begins at GPU virtual address `address`:
/// rows and slices follow each other without gaps.
pub(crate) fn rows(copy: &ArrayCopy<'_>, address: u64) -> CopyShape {
    let (part, shape) = (copy.part(), copy.array().shape());
    let [x, y, z] = part.origin.map(u64::from);
    // Rows of arrays have at most 2^21 bytes, slices at most 2^16 rows, and the box lies within.
    let first = (z * shape.rows() + y) * shape.row_bytes() + x;
    let array = RectSide {
        address: address.wrapping_add(first),
        pitch: shape.row_bytes() as u32,
        rows: shape.rows() as u32,
    };
    let (destination, source) = match copy.is_into_array() {
        true => (array, part.memory),
        false => (part.memory, array),
    };
    CopyShape {
        destination,
        source,
        width: part.width.into(),
        height: part.height,
        depth: part.depth,
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Arc;

    use causeway_mediator::backend::{Array, ArrayBox, ArrayShape, Element, ElementFormat};
    use causeway_protocol::message::array_flags;

    use super::*;

    struct Shaped(ArrayShape);

    impl Array for Shaped {
        fn shape(&self) -> &ArrayShape {
            &self.0
        }

        fn memory_bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn a_box_is_found_in_both_directions() {
        let element = Element {
            format: ElementFormat::Unsigned16,
            channels: 2,
        };
        let shape = ArrayShape::new([10, 6, 5], element, array_flags::LAYERED).unwrap();
        let array = Arc::new(Shaped(shape)) as Arc<dyn Array>;
        let memory = RectSide {
            address: 0x1000,
            pitch: 64,
            rows: 3,
        };
        let part = ArrayBox {
            memory,
            origin: [8, 2, 1],
            width: 12,
            height: 3,
            depth: 2,
        };
        let inside = RectSide {
            address: 0x10_0000 + (6 + 2) * 40 + 8,
            pitch: 40,
            rows: 6,
        };
        for (is_into_array, sides) in [(true, (inside, memory)), (false, (memory, inside))] {
            let copy = ArrayCopy::new(&array, part, is_into_array).unwrap();
            let found = rows(&copy, 0x10_0000);
            assert_eq!((found.destination, found.source), sides);
            assert_eq!((found.width, found.height, found.depth), (12, 3, 2));
            assert!(found.extents().is_some());
        }
    }
}
