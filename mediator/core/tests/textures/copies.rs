//! Copies: what they reach, and what recordings keep.

use crate::*;

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
