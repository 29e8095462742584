//! Fills as nodes of graphs.

use crate::error::{Answer, Code};
use crate::structures::FillNode;
use crate::work::Work;

/// Most rows of a fill that are one packet each.
const ROWS_MAX: u64 = 1 << 16;

/// Returns what a caller sees of a captured fill.
pub(crate) const fn given(
    (destination, bytes): (u64, u64),
    (value, element_bytes): (u32, u32),
) -> FillNode {
    FillNode {
        destination,
        pitch: 0,
        value,
        element_bytes,
        width: bytes / element_bytes as u64,
        height: 1,
    }
}

/// Returns the work of a fill.
pub(crate) fn fill_work(given: &FillNode) -> Answer<Work> {
    let element = u64::from(given.element_bytes);
    let bytes = given.width.checked_mul(element).unwrap_or(0);
    let shape_is_right = matches!(element, 1 | 2 | 4)
        && bytes != 0
        && (1..=ROWS_MAX).contains(&given.height)
        && (given.height == 1 || given.pitch >= bytes && given.pitch.is_multiple_of(element))
        && given.destination.is_multiple_of(element);
    if !shape_is_right {
        return Err(Code::INVALID_VALUE);
    }
    let row = |destination, bytes| Work::Fill {
        destination,
        bytes,
        pattern: given.value,
        width: given.element_bytes,
    };
    if given.height == 1 || given.pitch == bytes {
        let total = bytes.checked_mul(given.height).ok_or(Code::INVALID_VALUE)?;
        return Ok(row(given.destination, total));
    }
    let start = |index: u64| {
        given
            .destination
            .checked_add(index.checked_mul(given.pitch)?)
    };
    let rows = (0..given.height).map(|index| Some(row(start(index)?, bytes)));
    let rows: Option<Vec<Work>> = rows.collect();
    rows.map(Work::Sequence).ok_or(Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(element_bytes: u32, width: u64, height: u64, pitch: u64) -> FillNode {
        FillNode {
            destination: 0x1000,
            pitch,
            value: 7,
            element_bytes,
            width,
            height,
        }
    }

    fn rows(given: &FillNode) -> Vec<(u64, u64)> {
        let ends = |work: &Work| match work {
            Work::Fill {
                destination, bytes, ..
            } => (*destination, *bytes),
            _ => panic!("not a fill"),
        };
        match fill_work(given) {
            Ok(Work::Sequence(parts)) => parts.iter().map(ends).collect(),
            Ok(work) => vec![ends(&work)],
            Err(code) => panic!("refused: {code:?}"),
        }
    }

    #[test]
    fn rows_that_touch_are_one_fill() {
        assert_eq!(rows(&shape(4, 8, 1, 0)), [(0x1000, 32)]);
        assert_eq!(rows(&shape(4, 8, 3, 32)), [(0x1000, 96)]);
        assert_eq!(rows(&shape(2, 8, 2, 64)), [(0x1000, 16), (0x1040, 16)]);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let wrong = [
            shape(3, 8, 1, 0),
            shape(4, 0, 1, 0),
            shape(4, 8, 0, 0),
            shape(4, 8, 2, 16),
            shape(4, u64::MAX / 2, 1, 0),
            shape(4, 8, 1 << 40, 64),
            shape(4, 8, 2, u64::MAX),
        ];
        for given in wrong {
            assert_eq!(
                fill_work(&given).err(),
                Some(Code::INVALID_VALUE),
                "{given:?}"
            );
        }
    }
}
