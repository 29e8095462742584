//! Clients of one session: each owns what it made, and ends alone.

mod rig;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_mediator::Quota;
use causeway_mediator::fake::{FakeBackend, Live};
use causeway_protocol::message::*;
use causeway_protocol::registers::status;
use proptest::prelude::*;
use rig::*;
use zerocopy::IntoBytes;

/// Everything that a client can own, in one space.
struct Estate {
    space: u32,
    memory: u32,
    va: u64,
    offset: u64,
    module: u32,
    function: u32,
    recording: u32,
    buffer: Queue,
    token: Token,
}

fn with_kernels() -> Rig {
    let rig = Rig::new();
    rig.backend.define("add", 16, |launch| {
        launch.store(launch.parameter(0), launch.parameter(8))
    });
    rig.backend.define("hang", 0, |launch| {
        while !launch.stopped() {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    });
    rig
}

fn estate(guest: &Guest) -> Estate {
    let space = guest.space();
    let memory = guest.memory(MemoryKind::Host, PAGE);
    let va = guest.map_gpu(space, memory, PAGE, READ_WRITE).unwrap();
    let offset = guest.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    let text = "kernel add\nkernel hang";
    let module = guest.load_module(space, text, 0x8000).unwrap();
    Estate {
        space,
        memory,
        va,
        offset,
        module,
        function: guest.function(module, "hang").unwrap().handle,
        recording: guest.record(space, &[release(va, 1).as_bytes()]).unwrap(),
        buffer: guest.command_buffer(space),
        token: guest.export(memory, READ_WRITE).unwrap(),
    }
}

#[track_caller]
fn bad_handle<T: std::fmt::Debug>(outcome: Result<T, Refused>, handle: u32) {
    assert_eq!(outcome.unwrap_err(), (Status::BadHandle, handle));
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Refused>, status: Status) {
    assert_eq!(outcome.unwrap_err().0, status);
}

#[test]
fn what_others_own_is_not_there() {
    let rig = with_kernels();
    let (owner, thief) = (rig.guest.beside(1), rig.guest.beside(2));
    let theirs = estate(&owner);
    let (space, memory) = (thief.space(), thief.memory(MemoryKind::Host, RING_BYTES));
    for (opcode, handle) in [
        (Opcode::DestroySpace, theirs.space),
        (Opcode::Free, theirs.memory),
        (Opcode::UnloadModule, theirs.module),
        (Opcode::DestroyCommandBuffer, theirs.buffer.handle),
        (Opcode::DestroyRecording, theirs.recording),
        (Opcode::DestroySpace, theirs.function),
    ] {
        bad_handle(thief.by_handle(opcode, handle), handle);
    }
    bad_handle(
        thief.map_gpu(theirs.space, memory, PAGE, READ),
        theirs.space,
    );
    bad_handle(
        thief.map_gpu(space, theirs.memory, PAGE, READ),
        theirs.memory,
    );
    bad_handle(thief.map_cpu(theirs.memory, 0, PAGE, READ), theirs.memory);
    bad_handle(
        thief.unmap(Opcode::UnmapGpu, theirs.space, theirs.va),
        theirs.space,
    );
    refused(
        thief.unmap(Opcode::UnmapCpu, 0, theirs.offset),
        Status::BadRange,
    );
    bad_handle(thief.set_access(theirs.space, theirs.va, 0), theirs.space);
    refused(thief.set_access(0, theirs.offset, 0), Status::BadRange);
    bad_handle(thief.export(theirs.memory, READ), theirs.memory);
    refused(thief.revoke(&theirs.token), Status::BadToken);
    bad_handle(
        thief.load_module(theirs.space, "kernel add", 0x8000),
        theirs.space,
    );
    bad_handle(thief.function(theirs.module, "add"), theirs.module);
    bad_handle(
        thief.wait(theirs.space, theirs.va, 0, Duration::ZERO),
        theirs.space,
    );
    bad_handle(thief.notify(theirs.space, theirs.va, 0), theirs.space);
    bad_handle(
        thief.record(theirs.space, &[release(0, 1).as_bytes()]),
        theirs.space,
    );
    for (space, allocation, wrong) in [
        (theirs.space, memory, theirs.space),
        (space, theirs.memory, theirs.memory),
    ] {
        let request = CreateCommandBuffer {
            space,
            allocation,
            offset: 0,
            length: RING_BYTES,
        };
        bad_handle(
            thief.ask::<_, CommandBufferReply>(Opcode::CreateCommandBuffer, &request),
            wrong,
        );
    }
    // Nor is it by the place that it has in the aperture.
    let view = owner.host.map(theirs.offset).unwrap();
    view.write(0, b"kernel add").unwrap();
    let request = LoadModule {
        space,
        image_address: APERTURE_ADDRESS | theirs.offset,
        image_bytes: 10,
        ..LoadModule::default()
    };
    refused(
        thief.ask::<_, LoadModuleReply>(Opcode::LoadModule, &request),
        Status::BadRange,
    );
    // Packets find the functions and recordings of their own space only.
    let mut commands = thief.command_buffer(space);
    commands.submit(&[replay(theirs.recording).as_bytes()]);
    assert_eq!(commands.wait_for_fault(), Some(Status::BadHandle));

    let mut mine = theirs.buffer;
    mine.submit(&[replay(theirs.recording).as_bytes()]);
    eventually("the owner's work", || {
        view.load_u64(0, Ordering::Acquire) == Ok(1)
    });
}

#[test]
fn a_reset_frees_all_of_its_client_and_nothing_of_others() {
    let rig = with_kernels();
    let (one, other) = (rig.guest.beside(1), rig.guest.beside(63));
    let keeps = estate(&other);
    let before = rig.backend.live();
    let (placements, doorbells) = (one.host.placements().len(), one.host.doorbells());
    for round in 0..20 {
        assert!(!one.owns());
        let mut loses = estate(&one);
        assert!(one.owns() && other.owns());
        // Also while a kernel runs that would never end, and a fence is waited for that nobody releases.
        let hang = launch(loses.function, &[]);
        let stuck = fence(
            causeway_protocol::packet::Opcode::FenceAcquire,
            loses.va,
            99,
        );
        match round % 3 {
            0 => loses.buffer.submit(&[&hang]),
            1 => loses.buffer.submit(&[stuck.as_bytes()]),
            _ => {}
        }
        one.reset();
        assert_eq!(rig.backend.live(), before, "round {round}");
        assert_eq!(one.host.placements().len(), placements);
        assert_eq!(one.host.doorbells(), doorbells);
        assert_eq!((one.owns(), other.owns()), (false, true));
        assert_eq!(one.try_space(), Err((Status::NoHello, 0)));
        refused(other.import(&loses.token, READ), Status::BadToken);
        one.hello();
        bad_handle(one.by_handle(Opcode::Free, loses.memory), loses.memory);
    }
    let mut buffer = keeps.buffer;
    buffer.submit(&[release(keeps.va, 5).as_bytes()]);
    let view = other.host.map(keeps.offset).unwrap();
    eventually("the other's work", || {
        view.load_u64(0, Ordering::Acquire) == Ok(5)
    });
    assert_eq!(other.session.status_bits(), status::READY);
    other.reset();
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(rig.guest.session.owners(), 0);
}

#[test]
fn a_client_is_reset_again_and_again_beside_one_that_computes() {
    let rig = with_kernels();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guest = rig.guest.beside(1);
            let space = guest.space();
            let module = guest.load_module(space, "kernel add", 0x9000).unwrap();
            let add = guest.function(module, "add").unwrap().handle;
            let (va, view) = guest.buffer(space, PAGE);
            let mut buffer = guest.command_buffer(space);
            let mut value = 0u64;
            while !stop.load(Ordering::Relaxed) || value < 100 {
                value += 1;
                let parameters = [va.to_le_bytes(), value.to_le_bytes()].concat();
                let fence = release(va + 8, value);
                buffer.submit(&[&launch(add, &parameters), fence.as_bytes()]);
                eventually("the work", || {
                    view.load_u64(8, Ordering::Acquire) == Ok(value)
                });
                assert_eq!(view.load_u64(0, Ordering::Relaxed), Ok(value));
                assert!(guest.owns());
            }
        });
        let guest = rig.guest.beside(2);
        for _ in 0..150 {
            guest.hello();
            let mut loses = estate(&guest);
            loses.buffer.submit(&[&launch(loses.function, &[])]);
            guest.reset();
            assert!(!guest.owns());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(rig.guest.session.status_bits(), status::READY);
}

#[test]
fn operations_that_race_with_a_reset_leave_nothing_behind() {
    let rig = with_kernels();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (rig, stop) = (&rig, &stop);
            scope.spawn(move || {
                let guest = rig.guest.beside(7);
                while !stop.load(Ordering::Relaxed) {
                    guest.hello();
                    let Ok(space) = guest.try_space() else {
                        continue;
                    };
                    let address = 0x8000 + worker * 0x1000;
                    let _ = guest.load_module(space, "kernel add", address);
                    let Ok(memory) = guest.allocate(MemoryKind::Host, RING_BYTES) else {
                        continue;
                    };
                    let _ = guest.map_gpu(space, memory.handle, PAGE, READ_WRITE);
                    let request = CreateCommandBuffer {
                        space,
                        allocation: memory.handle,
                        offset: 0,
                        length: RING_BYTES,
                    };
                    let _ =
                        guest.ask::<_, CommandBufferReply>(Opcode::CreateCommandBuffer, &request);
                }
            });
        }
        for _ in 0..30 {
            rig.guest.session.reset_client(rig.guest.beside(7).client);
            std::thread::sleep(Duration::from_micros(300));
        }
        stop.store(true, Ordering::Relaxed);
    });
    rig.guest.session.reset_client(rig.guest.beside(7).client);
    assert_eq!(rig.backend.live(), NOTHING);
    assert_eq!(rig.guest.session.owners(), 0);
    assert!(rig.guest.host.doorbells().is_empty());
}

#[test]
fn a_wait_ends_when_its_client_is_reset() {
    let rig = Rig::new();
    let guest = rig.guest.beside(3);
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 1, Duration::from_secs(50)));
        eventually("the wait", || {
            guest
                .session
                .report()
                .messages
                .iter()
                .any(|m| m.0 == "wait")
        });
        guest.reset();
        refused(waiter.join().unwrap(), Status::DeviceLost);
    });
}

#[test]
fn an_import_of_another_client_ends_with_its_exporter() {
    let rig = Rig::new();
    let (owner, importer) = (rig.guest.beside(1), rig.guest.beside(2));
    let memory = owner.memory(MemoryKind::Host, PAGE);
    let token = owner.export(memory, READ_WRITE).unwrap();
    let import = importer.import(&token, READ).unwrap().handle;
    importer.map_cpu(import, 0, PAGE, READ).unwrap();
    owner.reset();
    assert!(importer.host.placements().is_empty());
    refused(importer.map_cpu(import, 0, PAGE, READ), Status::Revoked);
    importer.reset();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn a_lost_session_begins_anew_when_the_last_has_given_up() {
    let rig = Rig::new();
    rig.backend.define("fault", 0, |launch| launch.store(8, 1));
    let (one, other) = (rig.guest.beside(1), rig.guest.beside(2));
    let keeps = other.space();
    let space = one.space();
    let module = one.load_module(space, "kernel fault", 0x8000).unwrap();
    let fault = one.function(module, "fault").unwrap().handle;
    let mut buffer = one.command_buffer(space);
    buffer.submit(&[&launch(fault, &[])]);
    eventually("the loss", || one.session.status_bits() == status::LOST);
    bad_lost(&other);
    one.reset();
    assert_eq!(
        one.session.status_bits(),
        status::LOST,
        "another has not given up"
    );
    assert_eq!(one.session.owners(), other.client.bit());
    other.reset();
    assert_eq!(one.session.status_bits(), status::READY);
    assert_eq!(rig.backend.live(), NOTHING);
    other.hello();
    bad_handle(other.by_handle(Opcode::DestroySpace, keeps), keeps);
    assert!(other.try_space().is_ok());
    // One that owns nothing can do the same.
    one.session.lose(causeway_mediator::backend::Fault {
        status: Status::BackEnd,
        text: "the test wants it".to_owned(),
    });
    other.reset();
    assert_eq!(one.session.status_bits(), status::READY);
}

#[track_caller]
fn bad_lost(guest: &Guest) {
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
}

#[test]
fn quotas_are_the_sessions_and_come_back_with_a_reset() {
    let rig = Rig::on(
        FakeBackend::new(),
        Quota {
            memory_bytes: 4 * PAGE,
            ..Quota::default()
        },
    );
    let (greedy, modest) = (rig.guest.beside(1), rig.guest.beside(2));
    greedy.memory(MemoryKind::Host, 4 * PAGE);
    refused(modest.allocate(MemoryKind::Host, PAGE), Status::QuotaBytes);
    greedy.reset();
    modest.memory(MemoryKind::Host, 4 * PAGE);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate,
    Free,
    CreateSpace,
    DestroySpace,
    MapCpu,
    Reset,
}

/// What the model knows of one client.
#[derive(Default)]
struct Model {
    memories: Vec<u32>,
    spaces: Vec<u32>,
}

const CLIENTS: usize = 3;

fn step() -> impl Strategy<Value = (usize, usize, Step, prop::sample::Index)> {
    let kind = prop_oneof![
        4 => Just(Step::Allocate),
        3 => Just(Step::Free),
        2 => Just(Step::CreateSpace),
        2 => Just(Step::DestroySpace),
        2 => Just(Step::MapCpu),
        1 => Just(Step::Reset),
    ];
    (0..CLIENTS, 0..CLIENTS, kind, any::<prop::sample::Index>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever clients do, and whosever handles they name: what is theirs obeys, and nothing else does.
    #[test]
    fn clients_own_what_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let rig = Rig::new();
        let guests: Vec<Guest> = (1..=CLIENTS as u32).map(|n| rig.guest.beside(n)).collect();
        let mut models: [Model; CLIENTS] = Default::default();
        for (actor, owner, step, index) in steps {
            let guest = &guests[actor];
            let own = actor == owner;
            let memory = (!models[owner].memories.is_empty()).then(|| index.index(models[owner].memories.len()));
            let space = (!models[owner].spaces.is_empty()).then(|| index.index(models[owner].spaces.len()));
            match step {
                Step::Allocate => models[actor].memories.push(guest.memory(MemoryKind::Host, PAGE)),
                Step::CreateSpace => models[actor].spaces.push(guest.space()),
                Step::Free => if let Some(at) = memory {
                    let freed = guest.free(models[owner].memories[at]);
                    prop_assert_eq!(freed.is_ok(), own);
                    if own { models[owner].memories.remove(at); }
                },
                Step::DestroySpace => if let Some(at) = space {
                    let ended = guest.by_handle(Opcode::DestroySpace, models[owner].spaces[at]);
                    prop_assert_eq!(ended.is_ok(), own);
                    if own { models[owner].spaces.remove(at); }
                },
                Step::MapCpu => if let Some(at) = memory {
                    let mapped = guest.map_cpu(models[owner].memories[at], 0, PAGE, READ);
                    prop_assert_eq!(mapped.is_ok(), own);
                },
                Step::Reset => {
                    guest.reset();
                    guest.hello();
                    models[actor] = Model::default();
                }
            }
            let sum = |count: fn(&Model) -> usize| models.iter().map(count).sum::<usize>() as u64;
            let live = Live {
                bytes: PAGE * sum(|m| m.memories.len()),
                memories: sum(|m| m.memories.len()),
                spaces: sum(|m| m.spaces.len()),
                ..NOTHING
            };
            prop_assert_eq!(rig.backend.live(), live);
            for (guest, model) in guests.iter().zip(&models) {
                prop_assert_eq!(guest.owns(), !model.memories.is_empty() || !model.spaces.is_empty());
            }
        }
    }
}
