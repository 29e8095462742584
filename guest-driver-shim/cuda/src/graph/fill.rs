//! Fills as nodes of graphs.

use causeway_protocol::packet::FillShape;

use crate::structures::FillNode;

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

/// Returns what a caller sees of a captured fill of rows.
pub(crate) fn rows(shape: &FillShape) -> FillNode {
    FillNode {
        destination: shape.destination,
        pitch: shape.pitch.into(),
        value: shape.pattern,
        element_bytes: shape.element,
        width: shape.width / u64::from(shape.element),
        height: shape.height.into(),
    }
}
