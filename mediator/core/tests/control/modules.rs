//! Modules and their functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::{GuestSession, Mediator, Quota};
use causeway_mediator_testing::{Batch, FakeBackend, FakeHost, ask};
use causeway_protocol::message::*;

use crate::rig::*;

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
    assert_eq!(guest.kernel(module, "sub").unwrap_err().0, Status::NoKernel);
    let kernel = guest.kernel(module, "add").unwrap();
    assert_eq!((kernel.parameters, kernel.parameter_bytes), (3, 24));
    assert_eq!(
        kernel.layout[2],
        Parameter {
            offset: 16,
            size: 8
        }
    );
    assert_eq!(guest.kernel(module, "add").unwrap().handle, kernel.handle);
    assert_eq!(
        guest.kernel(space, "add").unwrap_err(),
        (Status::BadHandle, space)
    );
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(
        guest.kernel(module, "add").unwrap_err().0,
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
    let mut request = GetKernel {
        module,
        name_bytes: 3,
        ..GetKernel::default()
    };
    request.name[..4].copy_from_slice(b"addx");
    let refused = ask::<_, KernelReply>(&guest.session, Opcode::GetKernel, &request);
    assert_eq!(refused.unwrap_err(), (Status::ReservedNotZero, 16 + 8 + 3));
    for name_bytes in [0, 513, u32::MAX] {
        request.name_bytes = name_bytes;
        let refused = ask::<_, KernelReply>(&guest.session, Opcode::GetKernel, &request);
        assert_eq!(refused.unwrap_err().0, Status::BadRange);
    }
}

/// Loads `text` with room for a log. Returns the refusal, and the log.
fn refused_with_log(guest: &Guest, space: u32, text: &str) -> (Refused, String) {
    guest.host.ram_mapping().write(0, text.as_bytes()).unwrap();
    let request = LoadModule {
        space,
        log_bytes: 256,
        image_address: 0,
        image_bytes: text.len() as u64,
        log_address: 4096,
    };
    let mut batch = Batch::new();
    batch.push(Opcode::LoadModule, &request).run(&guest.session);
    let (status, detail) = batch.outcome(0);
    let reply: LoadModuleReply = batch.reply(0).unwrap();
    assert_eq!(reply.handle, 0);
    let mut log = vec![0; reply.log_bytes as usize];
    guest.host.ram_mapping().read(4096, &mut log).unwrap();
    ((status.unwrap(), detail), String::from_utf8(log).unwrap())
}

#[test]
fn images_of_modules_count_until_they_are_unloaded() {
    let rig = Rig::with_quota(Quota {
        module_bytes: 25,
        ..Quota::default()
    });
    rig.backend.define("add", 0, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    let [one, two] = [0, 1].map(|_| guest.load_module(space, "kernel add", 0).unwrap());
    let refused = guest.load_module(space, "kernel add", 0).unwrap_err();
    assert_eq!(refused.0, Status::QuotaBytes);
    guest.by_handle(Opcode::UnloadModule, one).unwrap();
    guest.load_module(space, "kernel add", 0).unwrap();
    guest.by_handle(Opcode::UnloadModule, two).unwrap();
    // A refused module is charged for nothing.
    for _ in 0..3 {
        let refused = guest.load_module(space, "nonsense nnnnn", 0).unwrap_err();
        assert_eq!(refused.0, Status::BadModule);
    }
}

#[test]
fn the_largest_image_is_only_a_matter_of_quota_and_a_larger_one_is_none() {
    let mediator = Mediator::new(FakeBackend::new());
    let host = FakeHost::new(MODULE_BYTES_MAX + PAGE, PAGE).unwrap();
    let quota = Quota {
        module_bytes: MODULE_BYTES_MAX - 1,
        ..Quota::default()
    };
    let session = mediator.open(Arc::clone(&host) as _, quota, "test");
    let guest = Guest::new(host, session);
    let space = guest.space();
    let refusal = |image_bytes| {
        let request = LoadModule {
            space,
            image_bytes,
            ..LoadModule::default()
        };
        let loaded = ask::<_, LoadModuleReply>(&guest.session, Opcode::LoadModule, &request);
        loaded.unwrap_err().0
    };
    assert_eq!(refusal(MODULE_BYTES_MAX), Status::QuotaBytes);
    assert_eq!(refusal(MODULE_BYTES_MAX + 1), Status::BadRange);
}

#[test]
fn a_module_beyond_a_limit_is_refused_with_a_log_and_charged_for_nothing() {
    let rig = Rig::with_quota(Quota {
        memory_bytes: 1 << 20,
        allocations: 2,
        ..Quota::default()
    });
    let guest = &rig.guest;
    let space = guest.space();
    guest.load_module(space, "variables 1000", 0).unwrap();
    let ((status, free_mib), log) = refused_with_log(guest, space, "variables 1048000");
    assert_eq!((status, free_mib), (Status::QuotaBytes, 0));
    let text = "the module takes 1048000 bytes of memory, and 1047576 of 1048576 bytes are left";
    assert!(log.starts_with(text), "{log}");

    let module = guest
        .load_module(space, "variable v 8\nvariable w 8", 0)
        .unwrap();
    let ((status, allowed), log) = refused_with_log(guest, space, "variable v 8");
    assert_eq!((status, allowed), (Status::QuotaAllocations, 2));
    assert!(log.contains("all the 2 that it may have"), "{log}");
    let refused = guest.allocate(MemoryKind::Host, PAGE).unwrap_err();
    assert_eq!(refused.0, Status::QuotaAllocations);
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    guest.memory(MemoryKind::Host, PAGE);
    assert_eq!(guest.attributes().memory_used_bytes, 1000 + PAGE);
}

#[test]
fn what_a_module_reserved_is_corrected_to_what_it_takes() {
    let rig = Rig::with_quota(Quota {
        memory_bytes: 1 << 20,
        ..Quota::default()
    });
    let guest = &rig.guest;
    let space = guest.space();
    guest
        .load_module(space, "variables 1000\nspare 500000", 0)
        .unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, 1000);
    guest
        .load_module(space, "variables 1000\nlate 2000", 0)
        .unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, 4000);
    let refused = guest.load_module(space, "late 1048000", 0).unwrap_err();
    assert_eq!(refused, (Status::QuotaBytes, 0));
    assert_eq!(guest.attributes().memory_used_bytes, 4000);
    assert_eq!(rig.backend.live().modules, 2);
}

#[test]
fn an_image_outside_the_guests_memory_is_refused_before_it_is_charged() {
    let quota = Quota {
        module_bytes: 100,
        ..Quota::default()
    };
    let rig = Rig::with_quota(quota);
    let request = LoadModule {
        space: rig.guest.space(),
        image_address: RAM_BYTES - 8,
        image_bytes: 200,
        ..LoadModule::default()
    };
    let refused = rig
        .guest
        .ask::<_, LoadModuleReply>(Opcode::LoadModule, &request);
    assert_eq!(refused.unwrap_err().0, Status::BadRange);
}

#[test]
fn the_end_of_a_space_ends_nothing_of_another() {
    let rig = Rig::new();
    rig.backend.define("add", 0, |_| Ok(()));
    let guest = &rig.guest;
    let (space, other) = (guest.space(), guest.space());
    let module = guest.load_module(other, "kernel add", 0).unwrap();
    let queue = guest.command_buffer(other);
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert!(guest.kernel(module, "add").is_ok());
    guest
        .by_handle(Opcode::DestroyCommandBuffer, queue.handle)
        .unwrap();
}

/// Begins to load a module in `space`, ends what `end` ends while the back end loads, and returns
/// how the load ended.
fn load_while(rig: &Rig, space: u32, end: impl FnOnce()) -> Result<u32, Refused> {
    rig.backend.hold_loads(true);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| rig.guest.load_module(space, "variables 1000", 0));
        eventually("the load", || rig.backend.loads_held() == 1);
        end();
        rig.backend.hold_loads(false);
        load.join().unwrap()
    })
}

#[test]
fn a_module_is_dropped_if_its_space_has_ended_while_it_was_loaded() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let destroyed = load_while(&rig, space, || {
        guest.by_handle(Opcode::DestroySpace, space).unwrap();
    });
    assert_eq!(destroyed.unwrap_err(), (Status::BadHandle, space));
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(guest.attributes().memory_used_bytes, 0);

    let space = guest.space();
    let reset = load_while(&rig, space, || {
        guest.reset();
        // Another space, perhaps with the same handle.
        guest.hello();
        guest.space();
    });
    assert_eq!(reset.unwrap_err().0, Status::DeviceLost);
    assert_eq!(rig.backend.live().modules, 0);
    assert_eq!(guest.attributes().memory_used_bytes, 0);
}

#[test]
fn loads_of_all_sessions_wait_for_each_other() {
    let rig = Rig::new();
    rig.backend.set_load_bytes(u64::MAX);
    rig.backend.hold_loads(true);
    let others = [rig.another(), rig.another()];
    let beside = rig.guest.beside(1);
    let load = |guest: &Guest| {
        let space = guest.space();
        guest.load_module(space, "variables 1000", 0)
    };
    std::thread::scope(|scope| {
        let first = [&rig.guest, &others[0]].map(|guest| scope.spawn(|| load(guest)));
        eventually("two loads", || rig.backend.loads_held() == 2);
        // One of a session that loads already, and one of another session.
        let waiting = [(&beside, 2), (&others[1], 1)].map(|(guest, loads)| {
            let waits = scope.spawn(|| load(guest));
            eventually("a load that waits", || {
                let report = guest.session.report();
                report.messages_by_name().contains(&("load_module", loads))
            });
            waits
        });
        beside.reset();
        others[1].reset();
        // Loads that the back end holds do not end before the gate is open.
        let begun = Instant::now();
        while !waiting.iter().all(|load| load.is_finished()) && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = waiting.each_ref().map(|load| load.is_finished());
        rig.backend.hold_loads(false);
        assert_eq!(ended, [true; 2]);
        for load in waiting {
            // The reset may come before the load has found its space.
            let refused = load.join().unwrap().unwrap_err().0;
            assert!(matches!(refused, Status::DeviceLost | Status::BadHandle));
        }
        for load in first {
            load.join().unwrap().unwrap();
        }
    });
}
