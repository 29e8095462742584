//! Whose arrays and textures are, who pays for them, and for how long.

use crate::*;

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
fn a_texture_that_work_goes_on_using_counts() {
    let quota = Quota {
        objects: 2,
        ..Quota::default()
    };
    let rig = Rig::with_quota(quota);
    let guest = &rig.guest;
    let request = rows(guest.space(), 0x1000);
    let create = || create_texture(guest, &request).map(|made| made.handle);
    let first = create().unwrap();
    assert_eq!(create(), Err((Status::QuotaObjects, 2)));
    rig.backend.use_unmapped(true);
    guest.by_handle(Opcode::DestroyTexture, first).unwrap();
    assert_eq!(create(), Err((Status::QuotaObjects, 2)));
    rig.backend.use_unmapped(false);
    let second = create().unwrap();
    guest.by_handle(Opcode::DestroyTexture, second).unwrap();
    create().unwrap();
}

#[test]
fn clients_of_a_session_create_arrays_one_after_another() {
    let rig = Rig::new();
    let beside = rig.guest.beside(1);
    let requests = [&rig.guest, &beside].map(|guest| {
        let space = guest.space();
        (guest, array_of(space, [8, 0, 0], 0))
    });
    rig.backend.hold_loads(true);
    std::thread::scope(|scope| {
        let created = requests.map(|(guest, request)| scope.spawn(move || create(guest, &request)));
        eventually("both requests", || {
            let report = rig.guest.session.report();
            report.messages_by_name().contains(&("create_array", 2))
        });
        // Both would be there soon.
        let most = (0..50).map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            rig.backend.loads_held()
        });
        let most = most.max();
        rig.backend.hold_loads(false);
        assert_eq!(most, Some(1));
        for created in created {
            created.join().unwrap().unwrap();
        }
    });
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
    let (va, _view) = guest.buffer(other, PAGE);
    let side = packet::RectSide {
        address: va,
        pitch: 32,
        rows: 8,
    };
    let part = packet::ArrayBox {
        memory: side,
        origin: [0; 3],
        width: 32,
        height: 8,
        depth: 1,
    };
    let copy = copy_array(array, 0, part);
    let mut queue = guest.command_buffer(other);
    queue.submit(&[copy.as_bytes()]);
    assert_eq!(queue.wait_for_fault(), Some(Status::BadHandle));
    let refused = guest.record(other, &[copy.as_bytes()]);
    assert_eq!(refused, Err((Status::BadHandle, 0)));
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
