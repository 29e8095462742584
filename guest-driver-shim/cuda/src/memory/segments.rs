//! Copies as rows: where each begins on both sides.

use causeway_protocol::packet::{CopyShape, RectSide};
use zerocopy::FromZeros;

use crate::structures::{Copy3d, CopySide};

/// `CU_MEMORYTYPE_UNIFIED`
const UNIFIED: u32 = 4;

/// One side of a copy: the first byte, and how far rows and slices are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) start: u64,
    pub(super) pitch: u64,
    pub(super) slice: u64,
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) to: Side,
    pub(super) from: Side,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) depth: u64,
}

/// Bytes that follow each other on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: u64,
}

impl Side {
    /// Returns the side as programs describe it.
    fn given(&self) -> CopySide {
        CopySide {
            memory_type: UNIFIED,
            device: self.start,
            pitch: self.pitch,
            height: self.slice.checked_div(self.pitch).unwrap_or(0),
            ..CopySide::new_zeroed()
        }
    }

    const fn linear(start: u64) -> Self {
        Self {
            start,
            pitch: 0,
            slice: 0,
        }
    }

    /// Returns the side that begins at `start` and has the rows of `shape` without anything between
    /// them.
    pub(super) const fn dense(start: u64, shape: &Shape) -> Self {
        Self {
            start,
            pitch: shape.width,
            slice: shape.width * shape.height,
        }
    }

    /// Returns the side as a packet describes it.
    fn packet(&self, shape: &Shape) -> Option<RectSide> {
        let pitch = match shape.height {
            1 => shape.width,
            _ => self.pitch,
        };
        let rows = match shape.depth {
            1 => shape.height,
            _ if self.slice.is_multiple_of(pitch) => self.slice / pitch,
            _ => return None,
        };
        Some(RectSide {
            address: self.start,
            pitch: u32::try_from(pitch).ok()?,
            rows: u32::try_from(rows).ok()?,
        })
    }

    /// Returns where a row begins. Checked by [`Shape::check`] for the last one.
    const fn row(&self, y: u64, z: u64) -> u64 {
        self.start + y * self.pitch + z * self.slice
    }

    /// Returns the end of the last row, if it has an address.
    fn end(&self, shape: &Shape) -> Option<u64> {
        let rows = (shape.height - 1).checked_mul(self.pitch)?;
        let slices = (shape.depth - 1).checked_mul(self.slice)?;
        let last = self.start.checked_add(rows)?.checked_add(slices)?;
        last.checked_add(shape.width)
    }
}

impl Shape {
    /// Returns the copy as programs describe it.
    pub(super) fn given(&self) -> Copy3d {
        Copy3d {
            source: self.from.given(),
            destination: self.to.given(),
            width_bytes: self.width,
            height: self.height,
            depth: self.depth,
        }
    }

    /// Returns the copy of `bytes` bytes that follow each other.
    pub(super) const fn linear(to: u64, from: u64, bytes: u64) -> Self {
        Self {
            to: Side::linear(to),
            from: Side::linear(from),
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    /// Returns the number of bytes of a copy that was checked.
    pub(super) const fn bytes(&self) -> u64 {
        self.width * self.height * self.depth
    }

    /// Returns whether there is nothing to copy.
    pub(super) const fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Returns the same copy with rows that follow each other on both sides as one, and slices of
    /// one row as rows; `None` if rows overlap or have no address. The copy is not empty.
    pub(super) fn checked(mut self) -> Option<Self> {
        for side in [&self.to, &self.from] {
            let overlaps = self.height > 1 && side.pitch < self.width;
            let rows = side.pitch.checked_mul(self.height - 1)?;
            let slice = rows.checked_add(self.width)?;
            if overlaps || self.depth > 1 && side.slice < slice {
                return None;
            }
            side.end(&self)?;
        }
        let is_dense = |side: &Side, width| side.pitch == width;
        let rows_follow = is_dense(&self.to, self.width) && is_dense(&self.from, self.width);
        if self.height == 1 || rows_follow {
            self.width *= self.height;
            self.height = 1;
        }
        let follows = self.to.slice == self.width && self.from.slice == self.width;
        if self.height == 1 && (self.depth == 1 || follows) {
            self.width *= self.depth;
            self.depth = 1;
        }
        if self.height == 1 && self.depth != 1 {
            for side in [&mut self.to, &mut self.from] {
                side.pitch = side.slice;
            }
            (self.height, self.depth) = (self.depth, 1);
        }
        Some(self)
    }

    /// Returns where the rows of each side begin, and the bytes from there to the end of the last
    /// row: of the destination, then of the source.
    pub(super) fn spans(&self) -> [(u64, u64); 2] {
        let (first, last) = (self.row(0, 0), self.row(self.height - 1, self.depth - 1));
        [
            (first.to, last.to - first.to + self.width),
            (first.from, last.from - first.from + self.width),
        ]
    }

    fn row(&self, y: u64, z: u64) -> Segment {
        Segment {
            to: self.to.row(y, z),
            from: self.from.row(y, z),
            bytes: self.width,
        }
    }

    /// Returns the copy as a packet describes it; `None` if numbers do not fit there.
    pub(super) fn packet(&self) -> Option<CopyShape> {
        Some(CopyShape {
            destination: self.to.packet(self)?,
            source: self.from.packet(self)?,
            width: self.width,
            height: u32::try_from(self.height).ok()?,
            depth: u32::try_from(self.depth).ok()?,
        })
    }

    /// Returns the copy in parts of at most `bytes_max` bytes and `rows_max` rows, in the order of
    /// the rows. Neither limit is zero.
    pub(super) fn parts(self, bytes_max: u64, rows_max: u64) -> impl Iterator<Item = Self> {
        let width = self.width.min(bytes_max);
        let of_row = (bytes_max / self.width).min(rows_max);
        let height = self.height.min(of_row.max(1));
        let of_slice = (of_row / self.height).max(1);
        let depth = match height == self.height {
            true => self.depth.min(of_slice),
            false => 1,
        };
        let steps = |whole: u64, part: u64| (0..whole.div_ceil(part)).map(move |i| i * part);
        let part = move |(x, y, z): (u64, u64, u64)| {
            let side = |side: Side| Side {
                start: side.row(y, z) + x,
                ..side
            };
            Self {
                to: side(self.to),
                from: side(self.from),
                width: width.min(self.width - x),
                height: height.min(self.height - y),
                depth: depth.min(self.depth - z),
            }
        };
        steps(self.depth, depth)
            .flat_map(move |z| steps(self.height, height).map(move |y| (y, z)))
            .flat_map(move |(y, z)| steps(self.width, width).map(move |x| (x, y, z)))
            .map(part)
    }

    /// Returns all rows.
    pub(super) fn rows(self) -> impl Iterator<Item = Segment> {
        let slices = 0..self.depth;
        slices.flat_map(move |z| (0..self.height).map(move |y| self.row(y, z)))
    }
}

impl Segment {
    /// Returns the segment in parts of at most `bytes` bytes.
    pub(super) fn parts(self, bytes: u64) -> impl Iterator<Item = Self> {
        (0..self.bytes.div_ceil(bytes)).map(move |index| Self {
            to: self.to + index * bytes,
            from: self.from + index * bytes,
            bytes: bytes.min(self.bytes - index * bytes),
        })
    }

    /// Returns parts of which none overlaps itself, in an order in which every byte is read before
    /// it is overwritten; `None` if that takes more than `parts_max`.
    pub(super) fn without_overlap(self, parts_max: u64) -> Option<Vec<Self>> {
        let distance = self.to.abs_diff(self.from);
        if distance == 0 {
            return Some(Vec::new());
        }
        if distance >= self.bytes {
            return Some(vec![self]);
        }
        if self.bytes.div_ceil(distance) > parts_max {
            return None;
        }
        let mut parts: Vec<_> = self.parts(distance).collect();
        if self.to > self.from {
            parts.reverse();
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(pitches: [u64; 2], slices: [u64; 2], extent: [u64; 3]) -> Shape {
        let side = |index: usize| Side {
            start: 0x1000 + 0x10_0000 * index as u64,
            pitch: pitches[index],
            slice: slices[index],
        };
        let [width, height, depth] = extent;
        Shape {
            to: side(0),
            from: side(1),
            width,
            height,
            depth,
        }
    }

    #[test]
    fn rows_that_follow_each_other_become_one() {
        let dense = shape([8, 8], [32, 32], [8, 4, 2]).checked().unwrap();
        assert_eq!(dense.rows().count(), 1);
        assert_eq!(dense.spans(), [(0x1000, 64), (0x10_1000, 64)]);
        let slices = shape([8, 8], [32, 64], [8, 4, 2]).checked().unwrap();
        assert_eq!(
            slices.rows().map(|row| row.bytes).collect::<Vec<_>>(),
            [32, 32]
        );
        let rows = shape([8, 16], [32, 64], [8, 4, 2]).checked().unwrap();
        let starts: Vec<_> = rows.rows().map(|row| row.from - 0x10_1000).collect();
        assert_eq!(starts, [0, 16, 32, 48, 64, 80, 96, 112]);
        assert_eq!(rows.spans(), [(0x1000, 64), (0x10_1000, 120)]);
    }

    #[test]
    fn rows_that_overlap_or_wrap_are_refused() {
        assert!(shape([8, 7], [0, 0], [8, 2, 1]).checked().is_none());
        assert!(shape([8, 8], [15, 16], [8, 2, 2]).checked().is_none());
        assert!(shape([1 << 63, 8], [0, 0], [8, 4, 1]).checked().is_none());
        assert!(shape([8, 8], [0, 0], [u64::MAX, 1, 1]).checked().is_none());
        assert!(shape([0, 0], [0, 0], [8, 1, 1]).checked().is_some());
    }

    #[test]
    fn slices_of_one_row_are_rows() {
        let found = shape([0, 0], [32, 64], [8, 1, 3]).checked().unwrap();
        assert_eq!((found.height, found.depth), (3, 1));
        assert_eq!((found.to.pitch, found.from.pitch), (32, 64));
    }

    #[test]
    fn parts_keep_every_byte_in_order() {
        let whole = shape([10, 12], [50, 60], [7, 4, 3]);
        let bytes = |shape: Shape| {
            let rows = shape.rows();
            rows.flat_map(|row| (0..row.bytes).map(move |at| (row.to + at, row.from + at)))
                .collect::<Vec<_>>()
        };
        let wanted = bytes(whole);
        assert_eq!(wanted.len() as u64, whole.bytes());
        for (bytes_max, rows_max, count) in [
            (u64::MAX, u64::MAX, 1),
            (u64::MAX, 8, 2),
            (u64::MAX, 7, 3),
            (u64::MAX, 3, 6),
            (56, u64::MAX, 2),
            (27, u64::MAX, 6),
            (7, u64::MAX, 12),
            (4, u64::MAX, 24),
        ] {
            let parts: Vec<_> = whole.parts(bytes_max, rows_max).collect();
            assert_eq!(parts.len(), count, "{bytes_max} {rows_max}");
            for part in &parts {
                assert!(part.bytes() <= bytes_max && part.height * part.depth <= rows_max);
            }
            let found: Vec<_> = parts.into_iter().flat_map(bytes).collect();
            assert_eq!(found, wanted, "{bytes_max} {rows_max}");
        }
    }

    #[test]
    fn a_packet_counts_slices_in_rows() {
        let found = shape([16, 32], [64, 96], [8, 3, 2]).packet().unwrap();
        assert_eq!((found.destination.pitch, found.destination.rows), (16, 4));
        assert_eq!((found.source.pitch, found.source.rows), (32, 3));
        assert_eq!(shape([16, 32], [65, 96], [8, 3, 2]).packet(), None);
        assert_eq!(shape([1 << 32, 32], [0, 0], [8, 3, 1]).packet(), None);
        let dense = Side::dense(7, &shape([16, 32], [64, 96], [8, 3, 2]));
        assert_eq!((dense.pitch, dense.slice), (8, 24));
    }

    #[test]
    fn an_overlapping_copy_moves_bytes_as_memmove_does() {
        for (to, from) in [(0_u64, 3_u64), (3, 0), (0, 10), (5, 5)] {
            let mut bytes: Vec<u8> = (0..20).collect();
            let mut wanted = bytes.clone();
            wanted.copy_within(from as usize..from as usize + 10, to as usize);
            let whole = Segment {
                to,
                from,
                bytes: 10,
            };
            for part in whole.without_overlap(100).unwrap() {
                assert!(part.to.abs_diff(part.from) >= part.bytes);
                let start = part.from as usize;
                bytes.copy_within(start..start + part.bytes as usize, part.to as usize);
            }
            assert_eq!(bytes, wanted, "{to} {from}");
        }
        let long = Segment {
            to: 1,
            from: 0,
            bytes: 1000,
        };
        assert!(long.without_overlap(999).is_none());
    }
}
