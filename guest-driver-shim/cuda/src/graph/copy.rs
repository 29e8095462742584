//! Copies as nodes of graphs.

use causeway_protocol::packet::{CopyShape, RectSide};

use crate::structures::{Copy3d, CopySide};

/// `CU_MEMORYTYPE_UNIFIED`
const UNIFIED: u32 = 4;

fn side(device: u64, pitch: u64, height: u64) -> CopySide {
    CopySide {
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
        pitch,
        height,
    }
}

/// Returns what a caller sees of a captured copy.
pub(crate) fn given(destination: u64, source: u64, bytes: u64) -> Copy3d {
    Copy3d {
        source: side(source, 0, 0),
        destination: side(destination, 0, 0),
        width_bytes: bytes,
        height: 1,
        depth: 1,
    }
}

/// Returns what a caller sees of a captured copy of rows.
pub(crate) fn rows(shape: &CopyShape) -> Copy3d {
    let given = |at: RectSide| side(at.address, at.pitch.into(), at.rows.into());
    Copy3d {
        source: given(shape.source),
        destination: given(shape.destination),
        width_bytes: shape.width,
        height: shape.height.into(),
        depth: shape.depth.into(),
    }
}
