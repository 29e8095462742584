//! Which arrays and textures can be made.

use crate::*;

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
        CreateTexture {
            width: 4 << 28,
            ..linear
        },
        rows(space, 0x1000),
        CreateTexture {
            address_modes: [1, 2, 3],
            ..rows(space, 0x1000)
        },
    ] {
        objects.push(create_texture(guest, &request).unwrap().object);
    }
    objects.sort_unstable();
    objects.dedup();
    assert_eq!(objects.len(), 7, "each has a number of its own");
    assert_eq!(rig.backend.live().textures, 7);
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
        CreateTexture {
            address: u64::MAX - 99,
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
        CreateTexture { pitch: 60, ..rows },
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
