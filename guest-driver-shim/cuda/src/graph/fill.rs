//! Fills as nodes of graphs.

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
