//! Mappings for the GPU and for CPUs, and the memory behind them.

use causeway_mediator::GuestSession;
use causeway_mediator_testing::ask;
use causeway_protocol::message::*;
use causeway_protocol::registers::status;

use crate::rig::*;

#[test]
fn gpu_mappings_check_range_alignment_rights_and_address() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Device, 4 * PAGE);
    let good = MapGpu {
        space,
        allocation: memory,
        length: PAGE,
        access: READ_WRITE,
        ..MapGpu::default()
    };
    let refused = |request| guest.map_gpu_at(request).unwrap_err();
    assert_eq!(refused(MapGpu { access: 2, ..good }).0, Status::BadAccess);
    assert_eq!(
        refused(MapGpu { offset: 8, ..good }),
        (Status::BadAlignment, 4096)
    );
    assert_eq!(refused(MapGpu { length: 0, ..good }).0, Status::BadRange);
    assert_eq!(
        refused(MapGpu {
            length: 5 * PAGE,
            ..good
        })
        .0,
        Status::BadRange
    );
    let wrapping = MapGpu {
        offset: u64::MAX - 4095,
        length: 2 * PAGE,
        ..good
    };
    assert_eq!(refused(wrapping).0, Status::BadRange);
    let outside = MapGpu {
        address: PAGE,
        ..good
    };
    assert_eq!(refused(outside).0, Status::AddressInUse);
    let fixed = MapGpu {
        address: 0x10_0000,
        length: 2 * PAGE,
        ..good
    };
    assert_eq!(guest.map_gpu_at(fixed), Ok(0x10_0000));
    let overlapping = MapGpu {
        address: 0x10_1000,
        ..good
    };
    assert_eq!(refused(overlapping).0, Status::AddressInUse);
    guest.unmap(Opcode::UnmapGpu, space, 0x10_0000).unwrap();
    assert!(
        guest.map_gpu_at(overlapping).is_ok(),
        "the range is free again"
    );
    assert_eq!(
        guest.unmap(Opcode::UnmapGpu, space, 0x10_0000),
        Err((Status::BadRange, 0))
    );
    assert_eq!(
        guest.unmap(Opcode::UnmapGpu, 0, 0),
        Err((Status::BadHandle, 0))
    );
}

#[test]
fn a_refused_mapping_leaves_nothing_behind() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Host, PAGE);
    rig.backend.fail("map", Some(Status::NoMemory));
    guest.host.fail("place", true);
    assert_eq!(
        guest.map_gpu(space, memory, PAGE, READ).unwrap_err().0,
        Status::NoMemory
    );
    assert_eq!(
        guest.map_cpu(memory, 0, PAGE, READ).unwrap_err().0,
        Status::NoMemory
    );
    rig.backend.fail("map", None);
    guest.host.fail("place", false);
    let va = guest.map_gpu(space, memory, PAGE, READ).unwrap();
    assert_eq!(
        va,
        rig.guest.attributes().va_base,
        "the first address was given back"
    );
    let full = guest.memory(MemoryKind::Host, 65 << 20);
    assert_eq!(
        guest.map_cpu(full, 0, 65 << 20, READ).unwrap_err().0,
        Status::NoMemory,
        "larger than the aperture"
    );
}

#[test]
fn cpu_mappings_are_of_visible_memory_and_rights_can_change() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let device = guest.memory(MemoryKind::Device, PAGE);
    assert_eq!(
        guest.map_cpu(device, 0, PAGE, READ).unwrap_err().0,
        Status::BadMemory
    );
    let memory = guest.memory(MemoryKind::DeviceVisible, 3 * PAGE);
    let first = guest.map_cpu(memory, PAGE, 2 * PAGE, READ_WRITE).unwrap();
    let second = guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    assert_ne!(first, second);
    let placement = &guest.host.placements()[&first];
    assert_eq!((placement.offset, placement.bytes), (PAGE, 2 * PAGE));
    guest.set_access(0, first, READ).unwrap();
    assert_eq!(guest.host.placements()[&first].access.wire(), READ);
    assert_eq!(
        guest.set_access(0, first, 2).unwrap_err().0,
        Status::BadAccess
    );
    assert_eq!(
        guest.set_access(0, 0x5000_0000, READ).unwrap_err().0,
        Status::BadRange
    );
    assert_eq!(
        guest.set_access(99, first, READ).unwrap_err(),
        (Status::BadHandle, 99)
    );
    assert_eq!(
        guest.unmap(Opcode::UnmapCpu, 9, first),
        Err((Status::BadHandle, 9))
    );
    guest.unmap(Opcode::UnmapCpu, 0, first).unwrap();
    assert_eq!(guest.host.placements().len(), 1);
    guest.free(memory).unwrap();
    assert!(
        guest.host.placements().is_empty(),
        "free removes what is left"
    );
}

#[test]
fn freed_memory_is_gone_from_every_mapping() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let memory = guest.memory(MemoryKind::Host, 2 * PAGE);
    let spaces = [guest.space(), guest.space()];
    for space in spaces {
        guest.map_gpu(space, memory, PAGE, READ).unwrap();
        guest.map_gpu(space, memory, 2 * PAGE, READ_WRITE).unwrap();
    }
    guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    guest.free(memory).unwrap();
    assert_eq!(rig.backend.live().bytes, 0);
    assert_eq!(guest.attributes().memory_used_bytes, 0);
    for space in spaces {
        guest.by_handle(Opcode::DestroySpace, space).unwrap();
    }
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn a_mapping_that_will_not_go_ends_the_session_and_keeps_its_memory() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let memory = guest.memory(MemoryKind::Host, PAGE);
    guest.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    guest.host.fail("remove", true);
    assert_eq!(guest.free(memory).unwrap_err().0, Status::BackEnd);
    assert_eq!(guest.session.status_bits(), status::LOST);
    assert_eq!(guest.fault().0, Some(Status::BackEnd));
    guest.host.fail("remove", false);
    guest.session.close();
    assert_eq!(
        rig.backend.live().bytes,
        PAGE,
        "the guest may still reach it"
    );
}

#[test]
fn guest_ram_is_registered_by_whole_pages_and_is_not_for_the_aperture() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let register = |address, length| {
        ask::<_, AllocateReply>(
            &guest.session,
            Opcode::RegisterRam,
            &RegisterRam { address, length },
        )
    };
    assert_eq!(register(8, PAGE).unwrap_err(), (Status::BadAlignment, 4096));
    assert_eq!(register(0, 0).unwrap_err().0, Status::BadRange);
    assert_eq!(register(RAM_BYTES, PAGE).unwrap_err().0, Status::BadRange);
    assert_eq!(
        register(u64::MAX - 4095, PAGE).unwrap_err().0,
        Status::BadRange
    );
    let ram = register(PAGE, 2 * PAGE).unwrap();
    assert_eq!(
        guest.attributes().memory_used_bytes,
        0,
        "it is the guest's own"
    );
    let space = guest.space();
    guest
        .map_gpu(space, ram.handle, 2 * PAGE, READ_WRITE)
        .unwrap();
    assert_eq!(
        guest.export(ram.handle, READ).unwrap_err().0,
        Status::BadMemory
    );
    assert_eq!(
        guest.map_cpu(ram.handle, 0, PAGE, READ).unwrap_err().0,
        Status::BadMemory
    );
}
