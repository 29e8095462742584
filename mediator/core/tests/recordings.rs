//! Recordings: what can be recorded, what a replay does, and who pays for how long.

mod rig;

use causeway_mediator::GuestSession;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::Quota;
use causeway_mediator_testing::{FakeBackend, ask};
use causeway_protocol::message::*;
use causeway_protocol::packet::{self, UNIT_BYTES};
use causeway_protocol::registers::{features, status};
use rig::*;
use zerocopy::IntoBytes;

const LONG: Duration = Duration::from_secs(20);

/// A guest with a kernel `add`, that adds its second parameter to the word at its first.
struct Bench {
    rig: Rig,
    space: u32,
    module: u32,
    kernel: u32,
}

impl Bench {
    fn new(quota: Quota) -> Self {
        let rig = Rig::with_quota(quota);
        rig.backend.define("add", 16, |launch| {
            let address = launch.parameter(0);
            let sum = launch.load(address)?.wrapping_add(launch.parameter(8));
            launch.store(address, sum)
        });
        let space = rig.guest.space();
        let text = "kernel add\nvariables 8192";
        let module = rig.guest.load_module(space, text, 0).unwrap();
        let kernel = rig.guest.kernel(module, "add").unwrap().handle;
        Self {
            rig,
            space,
            module,
            kernel,
        }
    }

    fn add(&self, address: u64, value: u64) -> Vec<u8> {
        launch(self.kernel, [address, value].as_bytes())
    }
}

#[test]
fn a_recording_is_replayed_as_often_as_asked_in_the_order_of_its_packets() {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let (va, view) = guest.buffer(bench.space, PAGE);
    let copy = packet::CopyRange {
        header: header(packet::Opcode::Copy, 1),
        destination: va + 64,
        source: va,
        length: 8,
        ..packet::CopyRange::default()
    };
    let fill = packet::Fill {
        header: header(packet::Opcode::Fill, 1),
        destination: va,
        length: 8,
        pattern: 1,
        width: 4,
        ..packet::Fill::default()
    };
    let recording = guest
        .record(
            bench.space,
            &[
                &bench.add(va, 4),
                header(packet::Opcode::Nop, 3).as_bytes(),
                &[0xff; 2 * UNIT_BYTES + 56],
                copy.as_bytes(),
                fill.as_bytes(),
                fence(packet::Opcode::Timestamp, va + 72, 0).as_bytes(),
                release(va + 80, 7).as_bytes(),
            ],
        )
        .unwrap();
    // What the guest does to its packets afterwards is without effect.
    let ram = guest.host.ram_mapping();
    ram.write(RECORDING_ADDRESS, &[0xff; 640]).unwrap();
    let mut queue = guest.command_buffer(bench.space);
    let word = |offset| view.load_u64(offset, Ordering::Acquire).unwrap();
    queue.submit(&[replay(recording).as_bytes()]);
    guest.wait(bench.space, va + 80, 7, LONG).unwrap();
    assert_eq!(word(64), 4);
    assert_ne!(word(72), 0);
    queue.submit(&[
        replay(recording).as_bytes(),
        replay(recording).as_bytes(),
        release(va + 88, 1).as_bytes(),
    ]);
    guest.wait(bench.space, va + 88, 1, LONG).unwrap();
    assert_eq!(word(64), 0x1_0000_0001 + 4, "filled before, added to after");
    eventually("the counts", || {
        guest
            .session
            .report()
            .packets_by_name()
            .contains(&("fence_release", 1))
    });
    let report = guest.session.report();
    assert!(
        report.packets_by_name().contains(&("replay", 3)),
        "{report:?}"
    );
    assert_eq!(report.statistics.launches, 0);
    assert!(report.messages_by_name().contains(&("create_recording", 1)));
}

#[test]
fn rows_are_copied_and_filled_and_count_as_copies_and_fills() {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let (va, view) = guest.buffer(bench.space, PAGE);
    let side = |address, pitch| packet::RectSide {
        address,
        pitch,
        rows: 2,
    };
    let copy = copy_rect(packet::CopyShape {
        destination: side(va + 1024, 16),
        source: side(va, 24),
        width: 8,
        height: 2,
        depth: 2,
    });
    let fill = packet::FillRect {
        header: header(packet::Opcode::FillRect, 1),
        shape: packet::FillShape {
            destination: va + 2048,
            pitch: 16,
            height: 3,
            width: 8,
            pattern: 0x0101,
            element: 2,
        },
        ..packet::FillRect::default()
    };
    let packets = [copy.as_bytes(), fill.as_bytes()];
    let recording = guest.record(bench.space, &packets).unwrap();
    let mut queue = guest.command_buffer(bench.space);
    let word = |offset| view.load_u64(offset, Ordering::Acquire).unwrap();
    let store = |offset, value| view.store_u64(offset, value, Ordering::Release).unwrap();
    let replayed = replay(recording);
    for (round, submitted) in [&packets[..], &[replayed.as_bytes()]]
        .into_iter()
        .enumerate()
    {
        let value = round as u64 + 1;
        (0..4).for_each(|row| store(24 * row, 10 * value + row));
        (0..6).for_each(|at| store(2048 + 8 * at, 0));
        let fence = release(va + 512, value);
        queue.submit(&[submitted, &[fence.as_bytes()]].concat());
        guest.wait(bench.space, va + 512, value, LONG).unwrap();
        for row in 0..4 {
            assert_eq!(word(1024 + 16 * row), 10 * value + row, "row {row}");
            assert_eq!(word(1032 + 16 * row), 0, "behind row {row}");
        }
        let filled: Vec<u64> = (0..6).map(|at| word(2048 + 8 * at)).collect();
        let all = 0x0101_0101_0101_0101;
        assert_eq!(filled, [all, 0, all, 0, all, 0]);
    }
    eventually("the counts", || {
        let counted = guest.session.report().statistics;
        (counted.copies, counted.fills, counted.written_bytes) == (1, 1, 32 + 24)
    });
}

/// Records a release, and then `packet`: gives the refusal, whose detail must be the packet's
/// offset.
fn refused(packet: impl Fn(&Bench, u64) -> Vec<u8>) -> Status {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let (va, _view) = guest.buffer(bench.space, PAGE);
    let packets = [
        release(va, 1).as_bytes().to_vec(),
        bench.add(va, 1),
        packet(&bench, va),
    ];
    let packets: Vec<_> = packets.iter().map(Vec::as_slice).collect();
    let (refusal, detail) = guest.record(bench.space, &packets).unwrap_err();
    assert_eq!(detail as usize, 3 * UNIT_BYTES, "{refusal:?}");
    assert_eq!(guest.session.status_bits(), status::READY);
    assert_eq!(bench.rig.backend.live().recordings, 0);
    guest
        .record(bench.space, &packets[..2])
        .expect("without it, it is right");
    refusal
}

#[test]
fn a_packet_that_cannot_be_recorded_is_named() {
    let changed = |at: usize, value: u32| {
        move |bench: &Bench, va: u64| {
            let mut packet = bench.add(va, 1);
            packet[at..at + 4].copy_from_slice(&value.to_le_bytes());
            packet
        }
    };
    let unit = |opcode: packet::Opcode, units: u32| {
        let mut bytes = header(opcode, units).as_bytes().to_vec();
        bytes.resize(UNIT_BYTES, 0);
        bytes
    };
    use packet::Opcode::{FenceAcquire, Nop, Replay};
    assert_eq!(
        refused(|_, va| fence(FenceAcquire, va, 1).as_bytes().to_vec()),
        Status::BadPacket
    );
    assert_eq!(refused(|_, _| unit(Replay, 1)), Status::BadPacket);
    assert_eq!(refused(|_, _| unit(Nop, 0)), Status::BadPacket);
    assert_eq!(refused(|_, _| unit(Nop, 2)), Status::BadPacket, "cut off");
    let cut = |bench: &Bench, va| bench.add(va, 1)[..UNIT_BYTES].to_vec();
    assert_eq!(refused(cut), Status::BadPacket);
    assert_eq!(refused(|_, _| vec![0xff; UNIT_BYTES]), Status::BadPacket);
    assert_eq!(refused(changed(60, 1)), Status::BadPacket, "reserved");
    assert_eq!(refused(changed(8, 0x77)), Status::BadHandle);
    assert_eq!(refused(changed(16, 0)), Status::BadLaunch);
    assert_eq!(refused(changed(28, 513)), Status::BadLaunch);
    assert_eq!(
        refused(|bench, _| launch(bench.kernel, &[0; 24])),
        Status::BadParameters
    );
    assert_eq!(
        refused(|_, va| release(va + 4, 1).as_bytes().to_vec()),
        Status::BadAlignment
    );
    let empty = |_: &Bench, _| {
        let header = header(packet::Opcode::Copy, 1);
        let copy = packet::CopyRange {
            header,
            ..packet::CopyRange::default()
        };
        copy.as_bytes().to_vec()
    };
    assert_eq!(refused(empty), Status::BadRange);
}

#[test]
fn a_recording_has_a_size_that_is_right_and_lies_in_ram() {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let record = |address, bytes| guest.record_at(bench.space, address, bytes);
    assert_eq!(record(0, 0), Err((Status::BadRange, 0)));
    assert_eq!(
        record(0, RECORDING_BYTES_MAX + 64),
        Err((Status::BadRange, 0))
    );
    assert_eq!(record(0, u64::MAX), Err((Status::BadRange, 0)));
    assert_eq!(record(0, 65), Err((Status::BadAlignment, 64)));
    assert_eq!(record(RAM_BYTES - 64, 128), Err((Status::BadRange, 0)));
    assert_eq!(record(u64::MAX - 63, 128), Err((Status::BadRange, 0)));
    let wrong = guest.record_at(bench.module, RECORDING_ADDRESS, 64);
    assert_eq!(wrong, Err((Status::BadHandle, bench.module)));
    let (va, _view) = guest.buffer(bench.space, PAGE);
    let ram = guest.host.ram_mapping();
    for at in (0..RECORDING_BYTES_MAX).step_by(UNIT_BYTES) {
        ram.write(at, release(va, at).as_bytes()).unwrap();
    }
    let largest = record(0, RECORDING_BYTES_MAX).unwrap();
    let mut queue = guest.command_buffer(bench.space);
    queue.submit(&[replay(largest).as_bytes()]);
    guest
        .wait(bench.space, va, RECORDING_BYTES_MAX - 64, LONG)
        .unwrap();
    let quiet = guest.record(
        bench.space,
        &[&{
            let mut nop = header(packet::Opcode::Nop, 1).as_bytes().to_vec();
            nop.resize(UNIT_BYTES, 0);
            nop
        }],
    );
    queue.submit(&[
        replay(quiet.unwrap()).as_bytes(),
        release(va, u64::MAX).as_bytes(),
    ]);
    guest.wait(bench.space, va, u64::MAX, LONG).unwrap();
}

#[test]
fn what_the_device_cannot_do_is_unsupported() {
    let backend = FakeBackend::with_features(features::KERNELS);
    let rig = Rig::on(backend, Quota::default());
    let space = rig.guest.space();
    let refused = rig.guest.record(space, &[release(0, 1).as_bytes()]);
    assert_eq!(refused, Err((Status::Unsupported, 0)));
    let allocate = |flags| {
        let request = Allocate {
            size: 1,
            kind: 0,
            flags,
        };
        ask::<_, AllocateReply>(&rig.guest.session, Opcode::Allocate, &request).map(drop)
    };
    assert_eq!(allocate(0), Ok(()));
    assert_eq!(
        allocate(allocate_flags::COMPRESSIBLE),
        Err((Status::Unsupported, 0))
    );
    assert_eq!(
        allocate(allocate_flags::FABRIC),
        Err((Status::Unsupported, 0))
    );
    // Head, size and kind come before the flags.
    assert_eq!(allocate(4), Err((Status::ReservedNotZero, 28)));
    assert_eq!(allocate(1 << 31 | 1), Err((Status::ReservedNotZero, 31)));
    let backend = FakeBackend::with_features(features::COMPRESSION);
    let rig = Rig::on(backend, Quota::default());
    let request = Allocate {
        size: 1,
        kind: 0,
        flags: allocate_flags::COMPRESSIBLE,
    };
    assert!(ask::<_, AllocateReply>(&rig.guest.session, Opcode::Allocate, &request).is_ok());
}

#[test]
fn a_replay_of_what_is_no_recording_of_the_space_ends_the_command_buffer() {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let (va, _view) = guest.buffer(bench.space, PAGE);
    let recording = guest
        .record(bench.space, &[release(va, 1).as_bytes()])
        .unwrap();
    let other = guest.space();
    let gone = guest
        .record(bench.space, &[release(va, 1).as_bytes()])
        .unwrap();
    guest.by_handle(Opcode::DestroyRecording, gone).unwrap();
    for (space, handle) in [
        (other, recording),
        (bench.space, gone),
        (bench.space, bench.kernel),
        (bench.space, 0),
        (bench.space, PREVIOUS),
    ] {
        let mut queue = guest.command_buffer(space);
        queue.submit(&[replay(handle).as_bytes()]);
        assert_eq!(queue.wait_for_fault(), Some(Status::BadHandle));
        assert_eq!(guest.session.status_bits(), status::READY);
    }
    let refused = |handle| guest.by_handle(Opcode::DestroyRecording, handle);
    assert_eq!(refused(gone), Err((Status::BadHandle, gone)));
    let kernel = bench.kernel;
    assert_eq!(refused(kernel), Err((Status::BadHandle, kernel)));
    assert_eq!(refused(recording), Ok(()));
}

#[test]
fn a_recording_keeps_the_kernels_of_an_unloaded_module_and_their_charge() {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let (va, view) = guest.buffer(bench.space, PAGE);
    let mut queue = guest.command_buffer(bench.space);
    let before = guest.attributes().memory_used_bytes;
    let recording = guest.record(
        bench.space,
        &[&bench.add(va, 5), release(va + 8, 1).as_bytes()],
    );
    guest.by_handle(Opcode::UnloadModule, bench.module).unwrap();
    // As the fake has it: a unit for each piece.
    assert_eq!(guest.attributes().memory_used_bytes, before + 128);
    let recording = recording.unwrap();
    queue.submit(&[replay(recording).as_bytes()]);
    guest.wait(bench.space, va + 8, 1, LONG).unwrap();
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(5));
    guest
        .by_handle(Opcode::DestroyRecording, recording)
        .unwrap();
    let module_bytes = 8192;
    eventually("the module's memory", || {
        guest.attributes().memory_used_bytes == before - module_bytes
    });
    assert_eq!(bench.rig.backend.live().recordings, 0);
}

#[test]
fn every_quota_bounds_recordings_and_destroying_one_makes_room() {
    let quotas = [
        // A space, a module and a kernel are objects, too.
        (
            Quota {
                objects: 5,
                ..Quota::default()
            },
            Status::QuotaObjects,
        ),
        (
            Quota {
                module_bytes: 16 * 256,
                ..Quota::default()
            },
            Status::QuotaBytes,
        ),
        (
            Quota {
                memory_bytes: 8192 + 200,
                ..Quota::default()
            },
            Status::QuotaBytes,
        ),
    ];
    for (quota, refusal) in quotas {
        let bench = Bench::new(quota);
        let guest = &bench.rig.guest;
        let record = || guest.record(bench.space, &[release(0x1_0000, 1).as_bytes()]);
        let mut recordings = Vec::new();
        let refused = loop {
            match record() {
                Ok(recording) => recordings.push(recording),
                Err((status, _)) => break status,
            }
        };
        assert_eq!(refused, refusal);
        assert!((2..=4).contains(&recordings.len()), "{quota:?}");
        assert_eq!(bench.rig.backend.live().recordings, recordings.len() as u64);
        guest
            .by_handle(Opcode::DestroyRecording, recordings[0])
            .unwrap();
        record().expect("there is room again");
    }
}

#[test]
fn recordings_end_with_their_space_and_with_their_session() {
    let bench = Bench::new(Quota::default());
    let guest = &bench.rig.guest;
    let packets = release(0x1_0000, 1);
    let recording = guest.record(bench.space, &[packets.as_bytes()]).unwrap();
    guest.by_handle(Opcode::DestroySpace, bench.space).unwrap();
    assert_eq!(
        guest.by_handle(Opcode::DestroyRecording, recording),
        Err((Status::BadHandle, recording))
    );
    assert_eq!(bench.rig.backend.live(), NOTHING);

    let space = guest.space();
    guest.record(space, &[packets.as_bytes()]).unwrap();
    guest.session.reset();
    guest.hello();
    assert_eq!(bench.rig.backend.live(), NOTHING);

    // Lost to an address that nothing is mapped at.
    let space = guest.space();
    let recording = guest.record(space, &[packets.as_bytes()]).unwrap();
    let mut queue = guest.command_buffer(space);
    queue.submit(&[replay(recording).as_bytes()]);
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    eventually("the loss", || guest.session.status_bits() == status::LOST);
    let lost = Err((Status::DeviceLost, 0));
    assert_eq!(guest.record(space, &[packets.as_bytes()]), lost);
    assert_eq!(
        guest.by_handle(Opcode::DestroyRecording, recording),
        lost.map(drop)
    );
    guest.session.close();
    assert_eq!(bench.rig.backend.live(), NOTHING);
}

#[test]
fn a_recording_that_the_back_end_refuses_costs_nothing() {
    let bench = Bench::new(Quota {
        module_bytes: 16 * 128,
        ..Quota::default()
    });
    let guest = &bench.rig.guest;
    let packets = release(0x1_0000, 1);
    bench.rig.backend.fail("record", Some(Status::MemoryFault));
    for _ in 0..4 {
        let refused = guest.record(bench.space, &[packets.as_bytes()]);
        assert_eq!(refused, Err((Status::MemoryFault, 0)));
    }
    bench.rig.backend.fail("record", None);
    guest.record(bench.space, &[packets.as_bytes()]).unwrap();
}
