//! Control operations, by the statuses that they can end with.

mod rig;

use std::time::Duration;

use causeway_mediator::fake::{Batch, ask};
use causeway_mediator::{Client, Quota};
use causeway_protocol::message::*;
use causeway_protocol::registers::status;
use rig::*;

#[test]
fn nothing_but_hello_comes_first_and_another_major_version_is_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    guest.session.reset();
    assert_eq!(guest.try_space(), Err((Status::NoHello, 0)));
    let hello = Hello {
        major: 9,
        ..Hello::default()
    };
    let refused = ask::<_, HelloReply>(&guest.session, Opcode::Hello, &hello);
    assert_eq!(refused.unwrap_err(), (Status::BadVersion, 1 << 16 | 2));
    let reply = guest.hello();
    assert_eq!((reply.major, reply.minor), (1, 2));
    assert_eq!(reply.session, guest.session.id());
    let older = Hello {
        major: 1,
        minor: 1,
        ..Hello::default()
    };
    let reply: HelloReply = ask(&guest.session, Opcode::Hello, &older).unwrap();
    assert_eq!((reply.major, reply.minor), (1, 1));
    assert!(guest.try_space().is_ok());
}

#[test]
fn allocate_and_map_is_one_batch_and_the_first_failure_ends_it() {
    let rig = Rig::new();
    let space = rig.guest.space();
    let mut batch = Batch::new();
    batch.push(
        Opcode::Allocate,
        &Allocate {
            size: 5000,
            kind: 2,
            flags: 0,
        },
    );
    batch.push(
        Opcode::MapGpu,
        &MapGpu {
            space,
            allocation: PREVIOUS,
            length: 2 * PAGE,
            access: 3,
            ..MapGpu::default()
        },
    );
    batch.push(
        Opcode::MapCpu,
        &MapCpu {
            allocation: PREVIOUS,
            length: PAGE,
            access: 1,
            offset: PAGE,
        },
    );
    batch.push(
        Opcode::Free,
        &HandleRequest {
            handle: 77,
            reserved: 0,
        },
    );
    batch.push(Opcode::CreateSpace, &Empty {});
    assert_eq!(batch.run(&rig.guest.session), Status::Ok);
    let allocated: AllocateReply = batch.reply(0).unwrap();
    assert_eq!((allocated.size, allocated.access), (2 * PAGE, READ_WRITE));
    for message in 0..3 {
        assert_eq!(batch.outcome(message), (Some(Status::Ok), 0));
    }
    assert_eq!(batch.outcome(3), (Some(Status::BadHandle), 77));
    assert_eq!(batch.outcome(4), (Some(Status::NotRun), 3));
    assert_eq!(rig.backend.live().spaces, 1);
    assert_eq!(rig.guest.host.placements().len(), 1);
}

#[test]
fn previous_without_a_previous_is_a_bad_handle() {
    let rig = Rig::new();
    assert_eq!(rig.guest.free(PREVIOUS), Err((Status::BadHandle, PREVIOUS)));
}

#[test]
fn messages_that_are_not_well_formed_are_refused_with_the_detail_promised() {
    let rig = Rig::new();
    let spoilt = |at: usize, value: u8| {
        let mut batch = Batch::new();
        batch.push(Opcode::CreateSpace, &Empty {});
        batch.push(Opcode::CreateSpace, &Empty {});
        batch.bytes_mut()[at] = value;
        assert_eq!(batch.run(&rig.guest.session), Status::Ok);
        (batch.outcome(0), batch.outcome(1).0)
    };
    let not_run = Some(Status::NotRun);
    assert_eq!(spoilt(1, 200), ((Some(Status::BadOpcode), 0), not_run));
    assert_eq!(spoilt(2, 1), ((Some(Status::ReservedNotZero), 2), not_run));
    assert_eq!(
        spoilt(13, 1),
        ((Some(Status::ReservedNotZero), 13), not_run)
    );
    assert_eq!(
        spoilt(20, 1),
        ((Some(Status::ReservedNotZero), 20), not_run)
    );
    let wrong_length = (Some(Status::BadLength), 24);
    assert_eq!(spoilt(4, 16).0, wrong_length);
    assert_eq!(
        spoilt(4, 0),
        (wrong_length, Some(Status::Ok)),
        "cannot be framed: left alone"
    );
    assert_eq!(
        rig.guest.session.execute(Client::FIRST, &mut []),
        Status::BadLength
    );
    assert_eq!(
        rig.guest.session.execute(Client::FIRST, &mut [0; 17]),
        Status::BadLength
    );
    assert_eq!(
        rig.guest
            .session
            .execute(Client::FIRST, &mut vec![0; 65544]),
        Status::BadLength
    );
}

#[test]
fn stale_and_foreign_handles_are_refused() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let memory = guest.memory(MemoryKind::Device, 1);
    let space = guest.space();
    guest.free(memory).unwrap();
    assert_eq!(guest.free(memory), Err((Status::BadHandle, memory)));
    let again = guest.memory(MemoryKind::Device, 1);
    assert_ne!(memory, again);
    assert_eq!(guest.free(memory), Err((Status::BadHandle, memory)));
    assert_eq!(
        guest.free(space),
        Err((Status::BadHandle, space)),
        "a space is not memory"
    );
    assert_eq!(
        guest.by_handle(Opcode::UnloadModule, space),
        Err((Status::BadHandle, space))
    );
    assert_eq!(
        rig.another().free(again),
        Err((Status::BadHandle, again)),
        "handles mean nothing elsewhere"
    );
}

#[test]
fn every_quota_is_kept_and_comes_back() {
    let rig = Rig::with_quota(Quota {
        memory_bytes: 4 << 20,
        allocations: 3,
        command_buffers: 1,
        objects: 3,
        ..Quota::default()
    });
    let guest = &rig.guest;
    assert_eq!(
        guest.allocate(MemoryKind::Host, 0).unwrap_err(),
        (Status::BadRange, 0)
    );
    assert_eq!(
        guest.allocate(MemoryKind::Host, 5 << 20).unwrap_err(),
        (Status::QuotaBytes, 4)
    );
    assert_eq!(
        guest.allocate(MemoryKind::Host, u64::MAX).unwrap_err().0,
        Status::QuotaBytes
    );
    let memory = guest.memory(MemoryKind::Host, 3 << 20);
    assert_eq!(guest.attributes().memory_used_bytes, 3 << 20);
    assert_eq!(
        guest.allocate(MemoryKind::Host, 2 << 20).unwrap_err(),
        (Status::QuotaBytes, 1)
    );
    let space = guest.space();
    guest.map_gpu(space, memory, PAGE, READ).unwrap();
    guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    assert_eq!(guest.try_space(), Err((Status::QuotaObjects, 3)));
    guest.free(memory).unwrap();
    let _first = guest.command_buffer(space);
    let second = guest.try_command_buffer(space).map(|queue| queue.handle);
    assert_eq!(second, Err((Status::QuotaCommandBuffers, 1)));
    guest.memory(MemoryKind::Host, 1);
    assert_eq!(
        guest.allocate(MemoryKind::Host, 1).unwrap_err(),
        (Status::QuotaAllocations, 3)
    );
}

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

#[test]
fn modules_are_refused_with_a_line_and_a_log_and_functions_die_with_them() {
    let rig = Rig::new();
    rig.backend.define("add", 24, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    let text = "kernel add\nnonsense";
    guest.host.ram_mapping().write(0, text.as_bytes()).unwrap();
    let mut batch = Batch::new();
    let request = LoadModule {
        space,
        log_bytes: 64,
        image_address: 0,
        image_bytes: text.len() as u64,
        log_address: 4096,
    };
    batch.push(Opcode::LoadModule, &request).run(&guest.session);
    assert_eq!(batch.outcome(0), (Some(Status::BadModule), 2));
    let reply: LoadModuleReply = batch.reply(0).unwrap();
    let mut log = vec![0; reply.log_bytes as usize];
    guest.host.ram_mapping().read(4096, &mut log).unwrap();
    assert_eq!(
        String::from_utf8(log).unwrap(),
        "line 2: not a line of a fake module"
    );
    assert_eq!(reply.handle, 0);

    for (image_address, image_bytes) in [(0, 0), (0, MODULE_BYTES_MAX + 1), (RAM_BYTES - 8, 16)] {
        let request = LoadModule {
            image_address,
            image_bytes,
            ..request
        };
        let refused = ask::<_, LoadModuleReply>(&guest.session, Opcode::LoadModule, &request);
        assert_eq!(refused.unwrap_err().0, Status::BadRange, "{image_bytes}");
    }

    let module = guest.load_module(space, "kernel add", 0).unwrap();
    assert_eq!(
        guest.function(module, "sub").unwrap_err().0,
        Status::NoFunction
    );
    let function = guest.function(module, "add").unwrap();
    assert_eq!((function.parameters, function.parameter_bytes), (3, 24));
    assert_eq!(
        function.layout[2],
        Parameter {
            offset: 16,
            size: 8
        }
    );
    assert_eq!(
        guest.function(module, "add").unwrap().handle,
        function.handle
    );
    assert_eq!(
        guest.function(space, "add").unwrap_err(),
        (Status::BadHandle, space)
    );
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(
        guest.function(module, "add").unwrap_err().0,
        Status::BadHandle
    );
    assert_eq!(rig.backend.live().modules, 0);
}

#[test]
fn a_function_name_says_its_length_and_is_zero_behind_it() {
    let rig = Rig::new();
    rig.backend.define("add", 0, |_| Ok(()));
    let guest = &rig.guest;
    let module = guest.load_module(guest.space(), "kernel add", 0).unwrap();
    let mut request = GetFunction {
        module,
        name_bytes: 3,
        ..GetFunction::default()
    };
    request.name[..4].copy_from_slice(b"addx");
    let refused = ask::<_, FunctionReply>(&guest.session, Opcode::GetFunction, &request);
    assert_eq!(refused.unwrap_err(), (Status::ReservedNotZero, 16 + 8 + 3));
    for name_bytes in [0, 513, u32::MAX] {
        request.name_bytes = name_bytes;
        let refused = ask::<_, FunctionReply>(&guest.session, Opcode::GetFunction, &request);
        assert_eq!(refused.unwrap_err().0, Status::BadRange);
    }
}

#[test]
fn reset_releases_everything_and_opens_a_fresh_session() {
    let rig = Rig::new();
    rig.backend.define("add", 0, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    guest.load_module(space, "kernel add", 0).unwrap();
    let queue = guest.command_buffer(space);
    let (_, view) = guest.buffer(space, PAGE);
    let shared = guest.memory(MemoryKind::Host, PAGE);
    let token = guest.export(shared, READ).unwrap();
    drop(view);
    guest.session.reset();
    assert_eq!(rig.backend.live(), NOTHING);
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
    assert_eq!(guest.session.status_bits(), status::READY);
    guest.hello();
    assert_eq!(guest.import(&token, READ).unwrap_err().0, Status::BadToken);
    assert_eq!(
        guest
            .by_handle(Opcode::DestroyCommandBuffer, queue.handle)
            .unwrap_err()
            .0,
        Status::BadHandle
    );
}

#[test]
fn close_is_final_and_can_be_repeated() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    guest.buffer(space, PAGE);
    guest.session.close();
    guest.session.close();
    assert_eq!(guest.session.status_bits(), 0);
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    let hello = ask::<_, HelloReply>(&guest.session, Opcode::Hello, &Hello::default());
    assert_eq!(hello.unwrap_err().0, Status::DeviceLost);
    guest.session.reset();
    assert_eq!(
        guest.session.status_bits(),
        0,
        "a reset does not bring it back"
    );
}

#[test]
fn wait_times_out_is_interrupted_and_sees_plain_stores() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let (va, view) = guest.buffer(space, PAGE);
    let soon = Duration::from_millis(2);
    assert_eq!(guest.wait(space, va, 1, soon), Err((Status::TimedOut, 0)));
    assert_eq!(
        guest.wait(space, va + 4, 1, soon),
        Err((Status::BadAlignment, 8))
    );
    assert_eq!(
        guest.wait(space, 0x8_0000, 1, soon),
        Err((Status::BadRange, 0))
    );
    assert_eq!(guest.wait(space, va, 0, soon), Ok(()));
    let long = Duration::from_secs(50);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 5, long));
        std::thread::sleep(soon);
        view.store_u64(0, 6, std::sync::atomic::Ordering::Release)
            .unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        let waiter = scope.spawn(|| guest.wait(space, va, 7, long));
        std::thread::sleep(soon);
        guest.memory(MemoryKind::Host, 1); // A sleeping wait holds nobody up.
        guest.session.interrupt();
        assert_eq!(waiter.join().unwrap(), Err((Status::TimedOut, 0)));
    });
    assert_eq!(
        guest.wait(space, va, 7, long),
        Err((Status::TimedOut, 0)),
        "and stays so"
    );
    assert_eq!(guest.wait(space, va, 6, long), Ok(()));
}

#[test]
fn a_halted_session_executes_no_message_any_more() {
    let rig = Rig::new();
    rig.guest.session.halt();
    let mut batch = Batch::new();
    batch.push(Opcode::CreateSpace, &Empty {});
    batch.push(Opcode::CreateSpace, &Empty {});
    assert_eq!(batch.run(&rig.guest.session), Status::Ok);
    for message in 0..2 {
        assert_eq!(batch.outcome(message), (Some(Status::NotRun), 0));
    }
    assert_eq!(rig.backend.live().spaces, 0);
}
