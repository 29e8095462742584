//! Images made up in memory: one good one, and every way of spoiling it.

use super::*;
use proptest::prelude::*;

const END: u64 = 8 << 20;
const CODE: &[u8] = b"\xf4guest code";

/// The fields of an image that tests spoil.
struct Fields {
    class: u8,
    encoding: u8,
    kind: u16,
    machine: u16,
    entry: u64,
    program_offset: u64,
    program_bytes: u16,
    program_count: u16,
    segment_kind: u32,
    flags: u32,
    offset: u64,
    virtual_address: u64,
    address: u64,
    file_bytes: u64,
    bytes: u64,
}

/// An image with one executable segment of `CODE` at the image base, and 4 KiB of zeros behind it.
const GOOD: Fields = Fields {
    class: 2,
    encoding: 1,
    kind: 2,
    machine: 62,
    entry: IMAGE_BASE,
    program_offset: 64,
    program_bytes: 56,
    program_count: 1,
    segment_kind: 1,
    flags: 5,
    offset: 120,
    virtual_address: IMAGE_BASE,
    address: IMAGE_BASE,
    file_bytes: CODE.len() as u64,
    bytes: 4096,
};

fn image(fields: &Fields) -> Vec<u8> {
    let f = fields;
    let mut image = vec![0; 120];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0x7f, b'E', b'L', b'F', f.class, f.encoding, 1]);
    for (at, half) in [
        (16, f.kind),
        (18, f.machine),
        (54, f.program_bytes),
        (56, f.program_count),
    ] {
        put(at, &half.to_le_bytes());
    }
    for (at, word) in [(64, f.segment_kind), (68, f.flags)] {
        put(at, &word.to_le_bytes());
    }
    for (at, double) in [
        (24, f.entry),
        (32, f.program_offset),
        (72, f.offset),
        (80, f.virtual_address),
        (88, f.address),
        (96, f.file_bytes),
        (104, f.bytes),
    ] {
        put(at, &double.to_le_bytes());
    }
    image.extend(CODE);
    image
}

fn spoiled(spoil: impl FnOnce(&mut Fields)) -> LoadError {
    let mut fields = GOOD;
    spoil(&mut fields);
    check(&image(&fields), IMAGE_BASE..END).unwrap_err()
}

#[test]
fn a_good_image_is_loaded_where_it_says() {
    let ram = GuestRam::new("test", END, false).unwrap();
    let loaded = load(&ram, &image(&GOOD), END).unwrap();
    assert_eq!(loaded.entry, IMAGE_BASE);
    assert_eq!(loaded.end, IMAGE_BASE + 4096);
    let mut bytes = [0xff; 16];
    ram.read(IMAGE_BASE, &mut bytes).unwrap();
    assert_eq!(&bytes[..CODE.len()], CODE);
    assert!(bytes[CODE.len()..].iter().all(|b| *b == 0));
}

#[test]
fn what_is_no_elf_is_called_so() {
    for bytes in [&b""[..], b"MZ", b"#!/bin/sh\n", &[0; 4096]] {
        assert!(matches!(
            check(bytes, IMAGE_BASE..END),
            Err(LoadError::NotElf { .. })
        ));
    }
    let text = check(b"#!/bin/sh\n", IMAGE_BASE..END)
        .unwrap_err()
        .to_string();
    assert!(text.contains("10 bytes") && text.contains("23"), "{text}");
}

#[test]
fn the_wrong_kind_of_elf_is_named() {
    assert!(matches!(
        spoiled(|f| f.class = 1),
        LoadError::Class { class: 1, .. }
    ));
    assert!(matches!(
        spoiled(|f| f.encoding = 2),
        LoadError::Class { encoding: 2, .. }
    ));
    assert!(matches!(
        spoiled(|f| f.machine = 183),
        LoadError::Machine { machine: 183 }
    ));
    assert!(matches!(
        spoiled(|f| f.kind = 3),
        LoadError::Type { kind: 3 }
    ));
    assert!(matches!(
        spoiled(|f| f.segment_kind = 3),
        LoadError::Dynamic
    ));
}

#[test]
fn segments_must_lie_in_file_and_memory() {
    type Spoil = fn(&mut Fields);
    let truncated: [Spoil; 5] = [
        |f| f.offset = 1 << 40,
        |f| f.offset = u64::MAX,
        |f| f.file_bytes += 1,
        |f| f.program_offset = 1 << 20,
        |f| f.program_offset = u64::MAX,
    ];
    for spoil in truncated {
        let error = spoiled(spoil);
        assert!(matches!(error, LoadError::Truncated { .. }), "{error}");
    }
    let outside: [Spoil; 3] = [
        |f| (f.address, f.virtual_address) = (0, 0),
        |f| f.bytes = END,
        |f| f.bytes = u64::MAX,
    ];
    for spoil in outside {
        let error = spoiled(spoil);
        assert!(matches!(error, LoadError::Segment { .. }), "{error}");
    }
    assert!(matches!(
        spoiled(|f| f.bytes = 4),
        LoadError::SegmentSize { .. }
    ));
    assert!(matches!(
        spoiled(|f| f.virtual_address = 1 << 47),
        LoadError::Moved { .. }
    ));
}

#[test]
fn headers_and_entry_must_make_sense() {
    for spoil in [
        |f: &mut Fields| f.program_count = 0,
        |f: &mut Fields| f.program_count = u16::MAX,
        |f: &mut Fields| f.program_bytes = 32,
    ] {
        let error = spoiled(spoil);
        assert!(matches!(error, LoadError::Headers { .. }), "{error}");
    }
    assert!(matches!(
        spoiled(|f| f.entry = 0),
        LoadError::Entry { entry: 0 }
    ));
    assert!(matches!(spoiled(|f| f.flags = 6), LoadError::Entry { .. }));
    assert!(matches!(
        check(b"\x7fELF\x02\x01", IMAGE_BASE..END),
        Err(LoadError::Truncated { .. })
    ));
}

proptest! {
    #[test]
    fn mutated_images_never_panic_and_never_leave_memory(
        changes in prop::collection::vec((0usize..131, any::<u8>()), 0..8),
        cut in 0usize..131,
    ) {
        let mut bytes = image(&GOOD);
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(131 - cut / 4);
        if let Ok(image) = check(&bytes, IMAGE_BASE..END) {
            prop_assert!(image.end <= END && image.entry < image.end);
        }
    }
}
