//! Arrays and textures: what can be made, what copies reach, and who pays for how long.

mod rig;

use std::sync::atomic::Ordering;

use causeway_mediator::{GuestSession, Quota};
use causeway_mediator_testing::{FakeBackend, Live};
use causeway_protocol::message::*;
use causeway_protocol::packet::{self, UNIT_BYTES};
use causeway_protocol::registers::features;
use rig::*;
use zerocopy::IntoBytes;

/// What an array of the fake back end takes more than its elements.
const MORE_BYTES: u64 = 512;
/// Numbers of `cuda.h`.
const UNSIGNED_8: u32 = 1;
const FLOAT: u32 = 32;

fn array_of(space: u32, size: [u64; 3], flags: u32) -> CreateArray {
    CreateArray {
        space,
        flags,
        width: size[0],
        height: size[1],
        depth: size[2],
        format: FLOAT,
        channels: 1,
    }
}

fn create(guest: &Guest, request: &CreateArray) -> Result<ArrayReply, Refused> {
    guest.ask(Opcode::CreateArray, request)
}

fn create_texture(guest: &Guest, request: &CreateTexture) -> Result<TextureReply, Refused> {
    guest.ask(Opcode::CreateTexture, request)
}

/// A texture of rows of memory.
fn rows(space: u32, address: u64) -> CreateTexture {
    CreateTexture {
        space,
        source: TextureSource::Rows as u32,
        address,
        width: 16,
        height: 4,
        pitch: 64,
        format: FLOAT,
        channels: 1,
        ..CreateTexture::default()
    }
}

fn of_array(space: u32, array: u32, source: TextureSource) -> CreateTexture {
    CreateTexture {
        space,
        source: source as u32,
        array,
        ..CreateTexture::default()
    }
}

#[test]
fn copies_reach_the_box_and_nothing_else() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, view) = guest.buffer(space, PAGE);
    // 4 bytes in a row, 3 rows, 2 slices.
    let request = CreateArray {
        format: UNSIGNED_8,
        ..array_of(space, [4, 3, 2], 0)
    };
    let array = create(guest, &request).unwrap();
    assert_eq!(array.bytes, 24 + MORE_BYTES);
    let mut queue = guest.command_buffer(space);
    for (at, byte) in (0..8).zip(1_u8..) {
        view.write(at, &[byte]).unwrap();
    }
    let side = |offset, pitch, rows| packet::RectSide {
        address: va + offset,
        pitch,
        rows,
    };
    // 2 by 2 by 2 at (1, 1, 0), then everything to another place.
    let into = packet::ArrayBox {
        memory: side(0, 2, 2),
        origin: [1, 1, 0],
        width: 2,
        height: 2,
        depth: 2,
    };
    let out = packet::ArrayBox {
        memory: side(64, 4, 3),
        origin: [0; 3],
        width: 4,
        height: 3,
        depth: 2,
    };
    queue.submit(&[
        copy_array(array.handle, 0, into).as_bytes(),
        copy_array(array.handle, 1, out).as_bytes(),
        release(va + 512, 1).as_bytes(),
    ]);
    eventually("the fence", || {
        view.load_u64(512, Ordering::Acquire) == Ok(1)
    });
    let mut found = [0; 24];
    view.read(64, &mut found).unwrap();
    let wanted = [
        [0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0],
        [0, 0, 0, 0, 0, 5, 6, 0, 0, 7, 8, 0],
    ];
    assert_eq!(found, *wanted.as_flattened());
}

#[test]
fn a_box_that_is_not_in_the_array_stops_the_command_buffer() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    let array = create(guest, &array_of(space, [4, 3, 0], 0))
        .unwrap()
        .handle;
    let good = packet::ArrayBox {
        memory: packet::RectSide {
            address: va,
            pitch: 16,
            rows: 4,
        },
        origin: [0; 3],
        width: 16,
        height: 3,
        depth: 1,
    };
    let wide = packet::ArrayBox { width: 20, ..good };
    let apart = packet::RectSide {
        pitch: 32,
        ..good.memory
    };
    let cases = [
        (
            array,
            packet::ArrayBox { width: 2, ..good },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox {
                origin: [2, 0, 0],
                width: 4,
                ..good
            },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox {
                origin: [4, 0, 0],
                ..good
            },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox {
                origin: [u32::MAX - 3, 0, 0],
                ..good
            },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox {
                origin: [0, 1, 0],
                ..good
            },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox {
                origin: [0, 0, 1],
                ..good
            },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox { depth: 2, ..good },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox {
                memory: apart,
                ..wide
            },
            Status::BadRange,
        ),
        (
            array,
            packet::ArrayBox { height: 0, ..good },
            Status::BadRange,
        ),
        (space, good, Status::BadHandle),
        (array + 1, good, Status::BadHandle),
    ];
    for (handle, part, status) in cases {
        let mut queue = guest.command_buffer(space);
        queue.submit(&[copy_array(handle, 0, part).as_bytes()]);
        assert_eq!(queue.wait_for_fault(), Some(status), "{part:?}");
        // A recording says so at once.
        let packet = copy_array(handle, 1, part);
        assert_eq!(
            guest.record(space, &[packet.as_bytes()]),
            Err((status, 0)),
            "{part:?}"
        );
    }
}

#[test]
fn a_recording_keeps_its_arrays_and_their_charge() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, view) = guest.buffer(space, PAGE);
    let before = guest.attributes().memory_used_bytes;
    let array = create(guest, &array_of(space, [4, 0, 0], 0)).unwrap();
    let part = |offset| packet::ArrayBox {
        memory: packet::RectSide {
            address: va + offset,
            pitch: 16,
            rows: 1,
        },
        origin: [0; 3],
        width: 16,
        height: 1,
        depth: 1,
    };
    let recording = guest
        .record(
            space,
            &[
                copy_array(array.handle, 0, part(0)).as_bytes(),
                copy_array(array.handle, 1, part(64)).as_bytes(),
                release(va + 512, 1).as_bytes(),
            ],
        )
        .unwrap();
    guest.by_handle(Opcode::DestroyArray, array.handle).unwrap();
    assert_eq!(rig.backend.live().arrays, 1, "the recording has it");
    view.write(0, &[7; 16]).unwrap();
    let mut queue = guest.command_buffer(space);
    queue.submit(&[replay(recording).as_bytes()]);
    eventually("the fence", || {
        view.load_u64(512, Ordering::Acquire) == Ok(1)
    });
    let mut found = [0; 16];
    view.read(64, &mut found).unwrap();
    assert_eq!(found, [7; 16]);
    let packets = 3 * UNIT_BYTES as u64;
    let used = guest.attributes().memory_used_bytes - before;
    assert!(used >= array.bytes + packets, "{used}");
    guest
        .by_handle(Opcode::DestroyRecording, recording)
        .unwrap();
    eventually("the end of the array", || rig.backend.live().arrays == 0);
}

#[test]
fn only_arrays_that_cuda_has_are_made() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (layered, cube) = (array_flags::LAYERED, array_flags::CUBEMAP);
    for (size, flags) in [
        ([8, 0, 0], 0),
        ([8, 8, 0], array_flags::GATHER),
        ([8, 8, 8], array_flags::SURFACE),
        ([8, 0, 5], layered),
        ([8, 8, 5], layered),
        ([8, 8, 6], cube),
        ([8, 8, 12], cube | layered),
    ] {
        let made = create(guest, &array_of(space, size, flags)).unwrap();
        let bytes: u64 = size.iter().map(|n| n.max(&1)).product();
        assert_eq!(made.bytes, 4 * bytes + MORE_BYTES, "{size:?}");
    }
    for (size, flags) in [
        ([0, 0, 0], 0),
        ([8, 0, 8], 0),
        ([131_073, 0, 0], 0),
        ([1, 65_537, 0], 0),
        ([1, 1, 16_385], 0),
        ([8, 8, 0], layered),
        ([1, 1, 2_049], layered),
        ([8, 8, 5], cube),
        ([8, 4, 6], cube),
        ([8, 8, 12], cube),
        ([8, 8, 8], cube | layered),
        ([8, 8, 0], cube | layered),
        ([8, 8, 2_052], cube | layered),
        ([8, 8, 8], array_flags::GATHER),
        ([8, 8, 8], 16),
        ([u64::MAX; 3], 0),
    ] {
        let refused = create(guest, &array_of(space, size, flags));
        assert_eq!(refused, Err((Status::BadRange, 0)), "{size:?} {flags}");
    }
    let good = array_of(space, [8, 8, 0], 0);
    for (format, channels) in [(0, 1), (4, 1), (33, 1), (FLOAT, 0), (FLOAT, 3), (FLOAT, 8)] {
        let request = CreateArray {
            format,
            channels,
            ..good
        };
        assert_eq!(create(guest, &request), Err((Status::BadRange, 0)));
    }
    let request = CreateArray { space: 99, ..good };
    assert_eq!(create(guest, &request), Err((Status::BadHandle, 99)));
}

#[test]
fn arrays_and_textures_count_and_what_is_refused_counts_for_nothing() {
    let quota = Quota {
        memory_bytes: PAGE,
        allocations: 2,
        ..Quota::default()
    };
    let rig = Rig::with_quota(quota);
    let guest = &rig.guest;
    let space = guest.space();
    let refused = |request| create(guest, &request).unwrap_err().0;
    // More than is left, by the elements or by what the device adds: it is never made.
    rig.backend.fail("create_array", Some(Status::BackEnd));
    for width in [PAGE / 4 + 1, PAGE / 4] {
        let status = refused(array_of(space, [width, 0, 0], 0));
        assert_eq!(status, Status::QuotaBytes, "{width}");
    }
    rig.backend.fail("create_array", None);
    let array = create(guest, &array_of(space, [8, 0, 0], 0)).unwrap();
    let other = create(guest, &array_of(space, [8, 0, 0], 0)).unwrap();
    let status = refused(array_of(space, [8, 0, 0], 0));
    assert_eq!(status, Status::QuotaAllocations);
    // A texture holds its array, and the array's charge.
    let texture = of_array(space, array.handle, TextureSource::Array);
    let texture = create_texture(guest, &texture).unwrap();
    guest.by_handle(Opcode::DestroyArray, array.handle).unwrap();
    let status = refused(array_of(space, [8, 0, 0], 0));
    assert_eq!(status, Status::QuotaAllocations);
    guest
        .by_handle(Opcode::DestroyTexture, texture.handle)
        .unwrap();
    create(guest, &array_of(space, [8, 0, 0], 0)).unwrap();
    rig.backend.fail("create_array", Some(Status::NoMemory));
    guest.by_handle(Opcode::DestroyArray, other.handle).unwrap();
    assert_eq!(refused(array_of(space, [8, 0, 0], 0)), Status::NoMemory);
    rig.backend.fail("create_array", None);
    create(guest, &array_of(space, [8, 0, 0], 0)).unwrap();
}

#[test]
fn textures_are_made_of_what_they_say() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let plain = create(guest, &array_of(space, [8, 8, 0], 0))
        .unwrap()
        .handle;
    let writable = array_of(space, [8, 8, 0], array_flags::SURFACE);
    let writable = create(guest, &writable).unwrap().handle;
    let linear = CreateTexture {
        source: TextureSource::Linear as u32,
        width: 64,
        height: 0,
        pitch: 0,
        ..rows(space, 0x1000)
    };
    let surface = of_array(space, writable, TextureSource::Surface);
    let mut objects = Vec::new();
    for request in [
        of_array(space, plain, TextureSource::Array),
        of_array(space, writable, TextureSource::Array),
        surface,
        linear,
        rows(space, 0x1000),
    ] {
        objects.push(create_texture(guest, &request).unwrap().object);
    }
    objects.sort_unstable();
    objects.dedup();
    assert_eq!(objects.len(), 5, "each has a number of its own");
    assert_eq!(rig.backend.live().textures, 5);
    let rows = rows(space, 0x1000);
    for wrong in [
        of_array(space, plain, TextureSource::Surface),
        CreateTexture {
            flags: 1,
            ..surface
        },
        CreateTexture {
            border: [1, 0, 0, 0],
            ..surface
        },
        CreateTexture {
            address: 0x1000,
            ..surface
        },
        CreateTexture {
            format: FLOAT,
            ..surface
        },
        CreateTexture {
            source: 4,
            ..surface
        },
        CreateTexture {
            array: plain,
            ..rows
        },
        CreateTexture {
            address: 0x1002,
            ..rows
        },
        CreateTexture {
            address: u64::MAX - 3,
            ..rows
        },
        CreateTexture { width: 17, ..rows },
        CreateTexture { width: 0, ..rows },
        CreateTexture {
            width: u64::MAX,
            ..rows
        },
        CreateTexture { height: 0, ..rows },
        CreateTexture {
            height: u64::MAX,
            ..rows
        },
        CreateTexture { pitch: 66, ..rows },
        CreateTexture {
            pitch: 1 << 32,
            ..rows
        },
        CreateTexture {
            channels: 3,
            ..rows
        },
        CreateTexture { filter: 2, ..rows },
        CreateTexture { flags: 4, ..rows },
        CreateTexture {
            anisotropy: 17,
            ..rows
        },
        CreateTexture {
            address_modes: [0, 4, 0],
            ..rows
        },
        CreateTexture {
            width: 62,
            ..linear
        },
        CreateTexture {
            width: (4 << 28) + 4,
            ..linear
        },
        CreateTexture {
            pitch: 64,
            ..linear
        },
        CreateTexture {
            height: 1,
            ..linear
        },
        CreateTexture {
            address: u64::MAX - 63,
            ..linear
        },
    ] {
        let refused = create_texture(guest, &wrong);
        assert_eq!(refused, Err((Status::BadRange, 0)), "{wrong:?}");
    }
    let bogus = of_array(space, 99, TextureSource::Array);
    let refused = create_texture(guest, &bogus);
    assert_eq!(refused, Err((Status::BadHandle, 99)));
    let refused = guest.by_handle(Opcode::DestroyTexture, plain);
    assert_eq!(refused, Err((Status::BadHandle, plain)));
    let refused = guest.by_handle(Opcode::DestroyArray, space);
    assert_eq!(refused, Err((Status::BadHandle, space)));
}

#[test]
fn an_array_belongs_to_one_space_and_ends_with_it() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let (space, other) = (guest.space(), guest.space());
    let array = create(guest, &array_of(space, [8, 8, 0], 0))
        .unwrap()
        .handle;
    let refused = create_texture(guest, &of_array(other, array, TextureSource::Array));
    assert_eq!(refused, Err((Status::BadHandle, array)));
    let texture = create_texture(guest, &of_array(space, array, TextureSource::Array)).unwrap();
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    for (opcode, handle) in [
        (Opcode::DestroyArray, array),
        (Opcode::DestroyTexture, texture.handle),
    ] {
        let refused = guest.by_handle(opcode, handle);
        assert_eq!(refused, Err((Status::BadHandle, handle)));
    }
    let Live {
        arrays, textures, ..
    } = rig.backend.live();
    assert_eq!((arrays, textures), (0, 0));
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn a_device_without_arrays_says_so() {
    let backend = FakeBackend::with_features(features::KERNELS);
    let rig = Rig::on(backend, Quota::default());
    let guest = &rig.guest;
    let space = guest.space();
    let unsupported = (Status::Unsupported, 0);
    let refused = create(guest, &array_of(space, [8, 8, 0], 0));
    assert_eq!(refused, Err(unsupported));
    let refused = create_texture(guest, &rows(space, 0x1000));
    assert_eq!(refused, Err(unsupported));
}
