//! Images made up in memory: one good one, and every way of spoiling it.

use super::*;
use proptest::prelude::*;

const END: u64 = 8 << 20;
const CODE: &[u8] = b"\xf4guest code";

/// An image with one executable segment of `CODE` at the image base, and 4 KiB of zeros behind it.
fn parts() -> (Header, Segment) {
    let header = Header {
        magic: *b"\x7fELF",
        class: 2,
        encoding: 1,
        ident: [0; 10],
        kind: 2,
        machine: 62,
        version: 1,
        entry: IMAGE_BASE,
        program_offset: 64,
        section_offset: 0,
        flags: 0,
        bytes: 64,
        program_bytes: 56,
        program_count: 1,
        section_bytes: 0,
        section_count: 0,
        section_names: 0,
    };
    let segment = Segment {
        kind: 1,
        flags: 5,
        offset: 120,
        virtual_address: IMAGE_BASE,
        address: IMAGE_BASE,
        file_bytes: CODE.len() as u64,
        bytes: 4096,
        align: 4096,
    };
    (header, segment)
}

fn image(header: &Header, segment: &Segment) -> Vec<u8> {
    [header.as_bytes(), segment.as_bytes(), CODE].concat()
}

fn spoiled(spoil: impl FnOnce(&mut Header, &mut Segment)) -> LoadError {
    let (mut header, mut segment) = parts();
    spoil(&mut header, &mut segment);
    check(&image(&header, &segment), IMAGE_BASE..END).unwrap_err()
}

#[test]
fn a_good_image_is_loaded_where_it_says() {
    let ram = GuestRam::new("test", END, false).unwrap();
    let (header, segment) = parts();
    let loaded = load(&ram, &image(&header, &segment), END).unwrap();
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
        spoiled(|h, _| h.class = 1),
        LoadError::Class { class: 1, .. }
    ));
    assert!(matches!(
        spoiled(|h, _| h.encoding = 2),
        LoadError::Class { encoding: 2, .. }
    ));
    assert!(matches!(
        spoiled(|h, _| h.machine = 183),
        LoadError::Machine { machine: 183 }
    ));
    assert!(matches!(
        spoiled(|h, _| h.kind = 3),
        LoadError::Type { kind: 3 }
    ));
    assert!(matches!(spoiled(|_, s| s.kind = 3), LoadError::Dynamic));
}

#[test]
fn segments_must_lie_in_file_and_memory() {
    type Spoil = fn(&mut Header, &mut Segment);
    let truncated: [Spoil; 5] = [
        |_, s| s.offset = 1 << 40,
        |_, s| s.offset = u64::MAX,
        |_, s| s.file_bytes += 1,
        |h, _| h.program_offset = 1 << 20,
        |h, _| h.program_offset = u64::MAX,
    ];
    for spoil in truncated {
        let error = spoiled(spoil);
        assert!(matches!(error, LoadError::Truncated { .. }), "{error}");
    }
    let outside: [Spoil; 3] = [
        |_, s| (s.address, s.virtual_address) = (0, 0),
        |_, s| s.bytes = END,
        |_, s| s.bytes = u64::MAX,
    ];
    for spoil in outside {
        let error = spoiled(spoil);
        assert!(matches!(error, LoadError::Segment { .. }), "{error}");
    }
    assert!(matches!(
        spoiled(|_, s| s.bytes = 4),
        LoadError::SegmentSize { .. }
    ));
    assert!(matches!(
        spoiled(|_, s| s.virtual_address = 1 << 47),
        LoadError::Moved { .. }
    ));
}

#[test]
fn headers_and_entry_must_make_sense() {
    for spoil in [
        |h: &mut Header| h.program_count = 0,
        |h: &mut Header| h.program_count = u16::MAX,
        |h: &mut Header| h.program_bytes = 32,
    ] {
        let error = spoiled(|h, _| spoil(h));
        assert!(matches!(error, LoadError::Headers { .. }), "{error}");
    }
    assert!(matches!(
        spoiled(|h, _| h.entry = 0),
        LoadError::Entry { entry: 0 }
    ));
    assert!(matches!(
        spoiled(|_, s| s.flags = 6),
        LoadError::Entry { .. }
    ));
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
        let (header, segment) = parts();
        let mut bytes = image(&header, &segment);
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(131 - cut / 4);
        if let Ok(image) = check(&bytes, IMAGE_BASE..END) {
            prop_assert!(image.end <= END && image.entry < image.end);
        }
    }
}
