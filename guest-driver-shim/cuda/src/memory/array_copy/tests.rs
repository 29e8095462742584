use super::ends::shape;
use super::*;

/// An array of 40 bytes in a row, 6 rows and 4 slices, of elements of 4 bytes.
const ELEMENTS: Elements = Elements {
    bytes: 4,
    row: 40,
    rows: 6,
    slices: 4,
};

/// The side of the array that begins at a place.
fn array(origin: [u64; 3]) -> Side {
    Side {
        start: ELEMENTS.offset(origin),
        pitch: 40,
        slice: 240,
    }
}

fn memory(pitch: u64, slice: u64) -> Side {
    Side {
        start: 0x10_0000,
        pitch,
        slice,
    }
}

fn found(to: Side, from: Side, size: [u64; 3]) -> Option<ArrayBox> {
    array_box(&ELEMENTS, to, from, &shape(to, from, size))
}

#[test]
fn a_box_is_at_its_place_in_array_and_memory() {
    let part = found(array([8, 1, 2]), memory(64, 640), [16, 3, 2]).unwrap();
    let wanted = ArrayBox {
        memory: RectSide {
            address: 0x10_0000,
            pitch: 64,
            rows: 10,
        },
        origin: [8, 1, 2],
        width: 16,
        height: 3,
        depth: 2,
    };
    assert_eq!(part, wanted);
}

#[test]
fn distances_that_do_not_matter_fit_every_packet() {
    let part = found(array([0, 0, 0]), memory(1 << 40, 0), [40, 1, 1]).unwrap();
    assert_eq!((part.memory.pitch, part.memory.rows), (40, 1));
    let part = found(array([0, 0, 0]), memory(48, 1 << 40), [40, 6, 1]).unwrap();
    assert_eq!((part.memory.pitch, part.memory.rows), (48, 6));
    // Slices of one row.
    let part = found(array([0, 2, 0]), memory(1, 56), [40, 1, 4]).unwrap();
    assert_eq!((part.memory.pitch, part.memory.rows), (56, 1));
}

#[test]
fn distances_that_no_packet_has_are_for_several() {
    let size = [40, 6, 4];
    assert_eq!(found(array([0; 3]), memory(48, 300), size), None);
    let wide = u64::from(u32::MAX);
    assert_eq!(found(array([0; 3]), memory(wide, 6 * wide), size), None);
    for (z, part) in shape(array([0; 3]), memory(48, 300), size)
        .parts(u64::MAX, 6)
        .enumerate()
    {
        let part = array_box(&ELEMENTS, part.to, part.from, &part).unwrap();
        assert_eq!(part.origin, [0, 0, z as u32]);
        assert_eq!(part.memory.address, 0x10_0000 + 300 * z as u64);
    }
    for part in shape(array([0; 3]), memory(wide, 6 * wide), size).parts(u64::MAX, 1) {
        let part = array_box(&ELEMENTS, part.to, part.from, &part).unwrap();
        assert_eq!((part.width, part.height, part.depth), (40, 1, 1));
    }
}

#[test]
fn parts_of_a_copy_are_parts_of_the_array() {
    let whole = shape(array([4, 1, 1]), memory(36, 216), [36, 5, 3]);
    let mut rows = Vec::new();
    for part in whole.parts(80, u64::MAX) {
        let part = array_box(&ELEMENTS, part.to, part.from, &part).unwrap();
        assert!(part.bytes() <= 80 && part.origin[0] == 4);
        for (offset, row, slice) in part.rows() {
            let at = part.memory.address - 0x10_0000 + offset;
            rows.push((part.origin[2] + slice, part.origin[1] + row, at));
        }
    }
    let wanted = (1..4).flat_map(|z: u32| {
        (1..6).map(move |y: u32| (z, y, u64::from(z - 1) * 216 + u64::from(y - 1) * 36))
    });
    assert_eq!(rows, wanted.collect::<Vec<_>>());
}

#[test]
fn the_span_of_memory_ends_with_the_last_row() {
    let side = memory(64, 640);
    let whole = shape(side, side, [16, 3, 2]);
    assert_eq!(span(&whole, side), 2 * 64 + 640 + 16);
    assert_eq!(span(&whole, side), whole.checked().unwrap().spans()[0].1);
}
