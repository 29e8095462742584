//! Copies as nodes of graphs.

use crate::structures::{Copy3d, CopySide};

/// `CU_MEMORYTYPE_UNIFIED`
const UNIFIED: u32 = 4;

/// Returns what a caller sees of a captured copy.
pub(crate) fn given(destination: u64, source: u64, bytes: u64) -> Copy3d {
    let side = |device| CopySide {
        x_bytes: 0,
        y: 0,
        z: 0,
        lod: 0,
        memory_type: UNIFIED,
        padding: 0,
        host: 0,
        device,
        array: 0,
        reserved: 0,
        pitch: 0,
        height: 0,
    };
    Copy3d {
        source: side(source),
        destination: side(destination),
        width_bytes: bytes,
        height: 1,
        depth: 1,
    }
}
