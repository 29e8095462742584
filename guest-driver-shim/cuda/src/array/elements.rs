//! What an array consists of, as checks of calls and copies need it.

use causeway_protocol::message::array_flags;

use crate::error::{Answer, Code};
use crate::structures::ArrayDescription3d;

/// Flags of arrays that `cuda.h` has and the device does not: depth textures, colour attachments,
/// sparse and deferred memory, video.
const FLAGS_OF_OTHERS: u32 = 0x1f0;

/// Rows and slices of an array, in bytes. The device has checked that CUDA has such an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    /// Bytes of an element: 1 to 16.
    pub(crate) bytes: u64,
    /// Bytes of a row.
    pub(crate) row: u64,
    /// Rows of a slice, at least 1.
    pub(crate) rows: u64,
    /// Slices, layers or faces, at least 1.
    pub(crate) slices: u64,
}

impl Elements {
    /// Returns what a description says.
    ///
    /// # Errors
    /// `INVALID_VALUE` for numbers that `cuda.h` does not have, or an array without elements;
    /// `NOT_SUPPORTED` for formats and flags that the device does not have.
    pub(super) fn of(given: &ArrayDescription3d) -> Answer<Self> {
        let bytes = u64::from(element_bytes(given.format, given.channels)?);
        if given.flags & FLAGS_OF_OTHERS != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        if given.flags & !array_flags::ALL != 0 || given.width == 0 {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Self {
            bytes,
            row: given.width.checked_mul(bytes).ok_or(Code::INVALID_VALUE)?,
            rows: given.height.max(1),
            slices: given.depth.max(1),
        })
    }

    /// Returns the offset of a place in bytes, rows and slices, if rows followed each other: at
    /// most 2^46, since the place is within the array.
    pub(crate) const fn offset(&self, [x, y, z]: [u64; 3]) -> u64 {
        (z * self.rows + y) * self.row + x
    }

    /// Returns the place at an offset.
    pub(crate) const fn origin(&self, offset: u64) -> [u64; 3] {
        let row = offset / self.row;
        [offset % self.row, row % self.rows, row / self.rows]
    }

    /// Refuses a box of `size` bytes, rows and slices that begins at `origin` and is not within the
    /// array, or not of whole elements. Nothing of it is zero.
    pub(crate) fn check(&self, origin: [u64; 3], size: [u64; 3]) -> Answer {
        let all = [self.row, self.rows, self.slices];
        let mut sides = origin.into_iter().zip(size).zip(all);
        let is_within = sides.all(|((from, size), all)| {
            let end = from.checked_add(size);
            end.is_some_and(|end| end <= all)
        });
        let is_whole = origin[0].is_multiple_of(self.bytes) && size[0].is_multiple_of(self.bytes);
        match is_within && is_whole {
            true => Ok(()),
            false => Err(Code::INVALID_VALUE),
        }
    }
}

/// Returns the size of a channel in bytes of a `CUarray_format`.
///
/// # Errors
/// `NOT_SUPPORTED` for formats that the device does not have, `INVALID_VALUE` for other numbers.
fn channel_bytes(format: u32) -> Answer<u32> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        // Colours of 10 bits, blocks, video, fractions.
        0x50 | 0x91..=0x9f | 0xa1..=0xa9 | 0xb0..=0xb5 | 0xc0..=0xcb => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Returns the size of an element in bytes.
///
/// # Errors
/// As [`channel_bytes`]; `INVALID_VALUE` for a number of channels that no element has.
pub(crate) fn element_bytes(format: u32, channels: u32) -> Answer<u32> {
    let bytes = channel_bytes(format)?;
    match channels {
        1 | 2 | 4 => Ok(bytes * channels),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Returns whether a format is one of integers, and whether kernels always read it as such.
pub(crate) const fn integers(format: u32) -> (bool, bool) {
    let is_wide = matches!(format, 0x03 | 0x0a);
    (
        matches!(format, 0x01 | 0x02 | 0x08 | 0x09) || is_wide,
        is_wide,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(size: [u64; 3], format: u32, channels: u32, flags: u32) -> ArrayDescription3d {
        let [width, height, depth] = size;
        ArrayDescription3d {
            width,
            height,
            depth,
            format,
            channels,
            flags,
            padding: 0,
        }
    }

    #[test]
    fn an_array_is_rows_of_whole_elements() {
        let found = Elements::of(&description([100, 0, 0], 0x20, 4, 0)).unwrap();
        let wanted = Elements {
            bytes: 16,
            row: 1600,
            rows: 1,
            slices: 1,
        };
        assert_eq!(found, wanted);
        let found = Elements::of(&description([10, 4, 3], 0x10, 1, 2)).unwrap();
        assert_eq!((found.row, found.rows, found.slices), (20, 4, 3));
    }

    #[test]
    fn wrong_descriptions_are_refused() {
        let code = |given| Elements::of(&given).err();
        let wrong = Some(Code::INVALID_VALUE);
        assert_eq!(code(description([1, 0, 0], 4, 1, 0)), wrong);
        assert_eq!(code(description([1, 0, 0], 0, 1, 0)), wrong);
        for channels in [0, 3, 5, 8] {
            assert_eq!(code(description([1, 0, 0], 1, channels, 0)), wrong);
        }
        assert_eq!(code(description([0, 4, 0], 1, 1, 0)), wrong);
        assert_eq!(code(description([u64::MAX, 4, 0], 2, 1, 0)), wrong);
        assert_eq!(code(description([1, 0, 0], 1, 1, 0x200)), wrong);
        let absent = Some(Code::NOT_SUPPORTED);
        assert_eq!(code(description([1, 1, 0], 1, 1, 0x40)), absent, "sparse");
        assert_eq!(code(description([1, 1, 0], 0xb0, 1, 0)), absent, "NV12");
    }

    #[test]
    fn boxes_are_within_the_array_and_of_whole_elements() {
        let elements = Elements::of(&description([10, 4, 3], 0x20, 2, 0)).unwrap();
        let wrong = Err(Code::INVALID_VALUE);
        assert_eq!(elements.check([8, 1, 2], [72, 3, 1]), Ok(()));
        assert_eq!(elements.check([8, 1, 2], [80, 3, 1]), wrong);
        assert_eq!(elements.check([8, 1, 2], [72, 4, 1]), wrong);
        assert_eq!(elements.check([8, 1, 2], [72, 3, 2]), wrong);
        assert_eq!(elements.check([4, 1, 2], [72, 3, 1]), wrong);
        assert_eq!(elements.check([8, 1, 2], [68, 3, 1]), wrong);
        assert_eq!(elements.check([u64::MAX - 7, 1, 2], [8, 3, 1]), wrong);
    }
}
