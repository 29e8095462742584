//! What the packets for rectangles cover. Guest and host find out in the same way whether a packet
//! may have a shape.

use super::{ArrayBox, CopyShape, FillShape, PITCH_MAX, ROWS_MAX, RectSide};

impl RectSide {
    /// Returns where a row begins, as an offset from the first one.
    const fn row(&self, row: u32, slice: u32) -> u64 {
        (slice as u64 * self.rows as u64 + row as u64) * self.pitch as u64
    }

    /// Returns the number of bytes from the first byte to the end of the last row; `None` if rows
    /// overlap or have no address.
    fn extent(&self, (width, height, depth): (u64, u32, u32)) -> Option<u64> {
        let is_apart = u64::from(self.pitch) >= width && self.rows >= height;
        if !is_apart || self.pitch > PITCH_MAX {
            return None;
        }
        // At most 2^31 * 2^20.
        let inside = u64::from(height - 1) * u64::from(self.pitch) + width;
        let slice = u64::from(self.rows) * u64::from(self.pitch);
        let bytes = u64::from(depth - 1).checked_mul(slice)?;
        let bytes = bytes.checked_add(inside)?;
        self.address.checked_add(bytes).map(|_| bytes)
    }
}

/// Returns whether a packet may have so many rows of so many bytes.
fn is_size(width: u64, height: u32, depth: u32) -> bool {
    let rows = u64::from(height) * u64::from(depth);
    width != 0 && (1..=ROWS_MAX).contains(&rows)
}

impl CopyShape {
    /// Returns the number of bytes between the first byte and the end of the last row, what lies
    /// between rows included: of the destination, then of the source. `None` if no packet may have
    /// this shape.
    #[must_use]
    pub fn extents(&self) -> Option<[u64; 2]> {
        if !is_size(self.width, self.height, self.depth) {
            return None;
        }
        let (to, from) = (&self.destination, &self.source);
        let size = (self.width, self.height, self.depth);
        let (to_bytes, from_bytes) = (to.extent(size)?, from.extent(size)?);
        let overlaps =
            to.address < from.address + from_bytes && from.address < to.address + to_bytes;
        (!overlaps || self.columns_are_apart()).then_some([to_bytes, from_bytes])
    }

    /// Returns whether no row of the destination overlaps a row of the source, because all begin at
    /// the same distance from each other, but for whole pitches.
    fn columns_are_apart(&self) -> bool {
        let pitch = u64::from(self.destination.pitch);
        let distance = self.destination.address.abs_diff(self.source.address) % pitch;
        self.destination.pitch == self.source.pitch
            && distance >= self.width
            && pitch - distance >= self.width
    }

    /// Returns where the rows begin in the destination and in the source, as offsets from the first
    /// ones.
    pub fn rows(self) -> impl Iterator<Item = (u64, u64)> {
        let rows = move |slice| (0..self.height).map(move |row| (row, slice));
        let (to, from) = (self.destination, self.source);
        (0..self.depth)
            .flat_map(rows)
            .map(move |(row, slice)| (to.row(row, slice), from.row(row, slice)))
    }

    /// Returns the number of bytes that are copied.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let rows = (self.height as u64).saturating_mul(self.depth as u64);
        rows.saturating_mul(self.width)
    }
}

impl ArrayBox {
    /// Returns the number of bytes of memory between the first byte and the end of the last row,
    /// what lies between rows included. `None` if no packet may have this shape; the array is not
    /// looked at.
    #[must_use]
    pub fn extent(&self) -> Option<u64> {
        let size = (u64::from(self.width), self.height, self.depth);
        is_size(size.0, size.1, size.2)
            .then(|| self.memory.extent(size))
            .flatten()
    }

    /// Returns where the rows begin: in memory, as an offset from the first one, and their row and
    /// slice in the box.
    pub fn rows(self) -> impl Iterator<Item = (u64, u32, u32)> {
        let rows = move |slice| (0..self.height).map(move |row| (row, slice));
        (0..self.depth)
            .flat_map(rows)
            .map(move |(row, slice)| (self.memory.row(row, slice), row, slice))
    }

    /// Returns the number of bytes that are copied.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let rows = (self.height as u64).saturating_mul(self.depth as u64);
        rows.saturating_mul(self.width as u64)
    }
}

impl FillShape {
    /// Returns the number of bytes between the first byte and the end of the last row, what lies
    /// between rows included. `None` if no packet may have this shape; the alignment is not looked
    /// at.
    #[must_use]
    pub fn extent(&self) -> Option<u64> {
        let is_apart = u64::from(self.pitch) >= self.width && self.pitch <= PITCH_MAX;
        if !is_apart || !is_size(self.width, self.height, 1) {
            return None;
        }
        let bytes = u64::from(self.height - 1) * u64::from(self.pitch) + self.width;
        self.destination.checked_add(bytes).map(|_| bytes)
    }

    /// Returns where the rows begin, as offsets from the first one.
    pub fn rows(self) -> impl Iterator<Item = u64> {
        (0..self.height).map(move |row| u64::from(row) * u64::from(self.pitch))
    }

    /// Returns the number of bytes that are filled.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.height as u64).saturating_mul(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const fn side(address: u64, pitch: u32, rows: u32) -> RectSide {
        RectSide {
            address,
            pitch,
            rows,
        }
    }

    const fn copy(
        to: RectSide,
        from: RectSide,
        (width, height, depth): (u64, u32, u32),
    ) -> CopyShape {
        CopyShape {
            destination: to,
            source: from,
            width,
            height,
            depth,
        }
    }

    #[test]
    fn an_extent_goes_from_the_first_byte_to_the_end_of_the_last_row() {
        let shape = copy(side(0x1000, 16, 4), side(0x9000, 32, 3), (8, 3, 2));
        assert_eq!(shape.extents(), Some([(4 + 2) * 16 + 8, (3 + 2) * 32 + 8]));
        assert_eq!(shape.bytes(), 48);
        let rows: Vec<_> = shape.rows().collect();
        assert_eq!(
            rows,
            [(0, 0), (16, 32), (32, 64), (64, 96), (80, 128), (96, 160)]
        );
    }

    #[test]
    fn rows_must_not_be_empty_overlap_wrap_or_be_too_many() {
        let (to, from) = (side(0x1000, 16, 4), side(0x9000, 32, 4));
        for size in [
            (0, 1, 1),
            (1, 0, 1),
            (1, 1, 0),
            (17, 1, 1),
            (8, 5, 1),
            (u64::MAX, 4, 2),
        ] {
            assert_eq!(copy(to, from, size).extents(), None, "{size:?}");
        }
        let all = u32::MAX;
        let sparse = |address| side(address, PITCH_MAX, all);
        assert!(
            copy(sparse(0), sparse(1 << 63), (8, 1, 2))
                .extents()
                .is_some()
        );
        for (to, size) in [
            (sparse(1 << 62), (8, 2, 1 << 10)),
            (sparse(u64::MAX - 7), (8, 1, 1)),
            (side(0, PITCH_MAX + 1, 1), (8, 1, 1)),
            (side(0, 8, all), (8, (1 << 20) + 1, 1)),
            (side(0, 8, all), (8, all, all)),
        ] {
            assert_eq!(
                copy(to, side(1 << 63, 8, all), size).extents(),
                None,
                "{to:?}"
            );
        }
    }

    #[test]
    fn sides_overlap_unless_their_columns_are_apart() {
        let apart = |to, from, size| copy(to, from, size).extents().is_some();
        let (left, right) = (side(0x1000, 64, 8), side(0x1020, 64, 8));
        assert!(apart(left, right, (32, 8, 1)) && apart(right, left, (32, 8, 1)));
        assert!(!apart(left, right, (33, 8, 1)));
        assert!(!apart(left, left, (8, 1, 1)));
        assert!(!apart(left, side(0x1020, 96, 8), (32, 8, 1)));
        assert!(apart(left, side(0x1000 + 8 * 64, 64, 8), (64, 8, 1)));
        assert!(!apart(left, side(0x1000 + 7 * 64, 64, 8), (64, 8, 1)));
        assert!(apart(side(0x1000 + 9 * 64 + 32, 64, 8), left, (32, 8, 2)));
    }

    /// What is said to be apart is so, byte by byte.
    #[test]
    fn no_byte_of_a_copy_is_both_read_and_written() {
        let mut found = 0;
        for pitches in [[8, 8], [8, 12], [5, 5]] {
            for distance in 0..64 {
                for (width, height, depth) in [(3, 3, 2), (4, 2, 1), (5, 1, 2)] {
                    let from = side(100, pitches[0], 3);
                    let to = side(100 + distance, pitches[1], 3);
                    let shape = copy(to, from, (width, height, depth));
                    if shape.extents().is_none() {
                        continue;
                    }
                    let touches = shape.rows().any(|(write, _)| {
                        let write = to.address + write;
                        shape
                            .rows()
                            .any(|(_, read)| write.abs_diff(from.address + read) < width)
                    });
                    assert!(!touches, "{shape:?}");
                    found += 1;
                }
            }
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn fills_have_the_same_limits() {
        let fill = |destination, pitch, height, width| FillShape {
            destination,
            pitch,
            height,
            width,
            pattern: 0,
            element: 1,
        };
        assert_eq!(fill(0, 16, 3, 8).extent(), Some(40));
        assert_eq!(fill(0, 16, 3, 8).rows().collect::<Vec<_>>(), [0, 16, 32]);
        assert_eq!(fill(0, 16, 3, 8).bytes(), 24);
        for wrong in [
            fill(0, 7, 1, 8),
            fill(0, 8, 0, 8),
            fill(0, 8, 1, 0),
            fill(0, 8, (1 << 20) + 1, 8),
            fill(0, PITCH_MAX + 1, 1, 8),
            fill(u64::MAX - 38, 16, 3, 8),
        ] {
            assert_eq!(wrong.extent(), None, "{wrong:?}");
        }
    }
}
