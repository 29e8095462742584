//! Copies as nodes of graphs.

use crate::error::{Answer, Code};
use crate::structures::{Copy3d, CopySide};
use crate::work::Work;

/// `CU_MEMORYTYPE_DEVICE` and `CU_MEMORYTYPE_UNIFIED`
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;
/// Most rows of a copy that are one packet each.
const ROWS_MAX: u64 = 1 << 16;

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

/// Returns the work of a copy between memory that the device addresses.
pub(crate) fn copy_work(given: &Copy3d) -> Answer<Work> {
    let (rows, slices) = (given.height.max(1), given.depth.max(1));
    let count = rows.checked_mul(slices).filter(|count| *count <= ROWS_MAX);
    if given.width_bytes == 0 || count.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let mut parts = Vec::new();
    for slice in 0..slices {
        for row in 0..rows {
            parts.push(Work::Copy {
                destination: start(&given.destination, row, slice)?,
                source: start(&given.source, row, slice)?,
                bytes: given.width_bytes,
            });
        }
    }
    match parts.len() {
        1 => parts.pop().ok_or(Code::INVALID_VALUE),
        _ => Ok(Work::Sequence(parts)),
    }
}

/// Returns the address of a row of one side.
fn start(side: &CopySide, row: u64, slice: u64) -> Answer<u64> {
    if !matches!(side.memory_type, DEVICE | UNIFIED) {
        return Err(Code::NOT_SUPPORTED);
    }
    let sum = || {
        let slices = side.z.checked_add(slice)?.checked_mul(side.height)?;
        let rows = slices.checked_add(side.y)?.checked_add(row)?;
        let offset = rows.checked_mul(side.pitch)?.checked_add(side.x_bytes)?;
        side.device.checked_add(offset)
    };
    sum().ok_or(Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_slices_start_where_the_pitch_says() {
        let mut copy = given(0x1000, 0x8000, 16);
        (copy.height, copy.depth) = (2, 2);
        (copy.source.pitch, copy.source.height) = (64, 4);
        (copy.destination.pitch, copy.destination.height) = (16, 2);
        copy.source.x_bytes = 8;
        let Ok(Work::Sequence(parts)) = copy_work(&copy) else {
            panic!("not several copies");
        };
        let ends: Vec<(u64, u64)> = parts
            .iter()
            .map(|part| match part {
                Work::Copy {
                    destination,
                    source,
                    bytes: 16,
                } => (*destination, *source),
                _ => panic!("not a copy of 16 bytes"),
            })
            .collect();
        let wanted = [
            (0x1000, 0x8008),
            (0x1010, 0x8048),
            (0x1020, 0x8108),
            (0x1030, 0x8148),
        ];
        assert_eq!(ends, wanted);
    }

    #[test]
    fn hostile_sizes_are_refused() {
        let mut copy = given(0x1000, 0x8000, 16);
        (copy.height, copy.depth) = (1 << 40, 1 << 40);
        assert_eq!(copy_work(&copy).err(), Some(Code::INVALID_VALUE));
        let mut copy = given(0x1000, 0x8000, 16);
        copy.source.y = u64::MAX;
        copy.source.pitch = u64::MAX;
        assert_eq!(copy_work(&copy).err(), Some(Code::INVALID_VALUE));
        let mut copy = given(0x1000, 0x8000, 16);
        copy.source.memory_type = 3;
        assert_eq!(copy_work(&copy).err(), Some(Code::NOT_SUPPORTED));
    }
}
