//! Packets are executed in order.

use causeway_mediator::GuestSession;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_protocol::message::Status;
use causeway_protocol::packet::{self, LaunchOptions, launch_flags};
use causeway_protocol::ring;
use zerocopy::{FromBytes, IntoBytes};

use crate::rig::*;
use crate::{LONG, store, with_store};

#[test]
fn packets_run_in_order_and_a_fence_tells() {
    let (rig, space, kernel) = with_store();
    let guest = &rig.guest;
    let (va, view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    let fill = packet::Fill {
        header: header(packet::Opcode::Fill, 1),
        destination: va,
        length: 64,
        pattern: 0xabcd,
        width: 2,
        ..packet::Fill::default()
    };
    let copy = packet::CopyRange {
        header: header(packet::Opcode::Copy, 1),
        destination: va + 64,
        source: va,
        length: 16,
        ..packet::CopyRange::default()
    };
    let time = fence(packet::Opcode::Timestamp, va + 80, 0);
    queue.submit(&[
        fill.as_bytes(),
        &store(kernel, va, 7),
        copy.as_bytes(),
        time.as_bytes(),
        release(va + 88, 3).as_bytes(),
    ]);
    guest.wait(space, va + 88, 3, LONG).unwrap();
    let word = |offset| view.load_u64(offset, Ordering::Acquire).unwrap();
    assert_eq!(word(64), 7);
    assert_eq!(word(72), 0xabcd_abcd_abcd_abcd);
    assert_ne!(word(80), 0);
    eventually("the count", || {
        guest.session.report().statistics.launches == 1
    });
    let report = guest.session.report();
    assert!(
        report
            .messages_by_name()
            .contains(&("create_command_buffer", 1))
    );
    assert_eq!(queue.producer.fault(), 0);
}

#[test]
fn a_ring_wraps_and_its_positions_go_on() {
    let (rig, space, kernel) = with_store();
    let (va, view) = rig.guest.buffer(space, PAGE);
    let mut queue = rig.guest.command_buffer(space);
    for value in 1..=500 {
        // Three units: the end of the ring is not a multiple, so no-ops precede the wrap.
        let mut parameters = store(kernel, va, value);
        parameters.resize(64 * 2, 0);
        queue.submit(&[&parameters, release(va + 8, value).as_bytes()]);
    }
    rig.guest.wait(space, va + 8, 500, LONG).unwrap();
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(500));
    eventually("the consumer position", || {
        queue.producer.consumed() == queue.producer.position()
    });
    let packets = rig.guest.session.report().packets_by_name();
    assert!(packets.contains(&("launch", 500)) && packets.contains(&("fence_release", 500)));
}

#[test]
fn one_command_buffer_waits_for_another_by_fence() {
    let (rig, space, kernel) = with_store();
    let (va, view) = rig.guest.buffer(space, PAGE);
    let mut first = rig.guest.command_buffer(space);
    let mut second = rig.guest.command_buffer(space);
    let acquire = fence(packet::Opcode::FenceAcquire, va, 2);
    first.submit(&[
        acquire.as_bytes(),
        &store(kernel, va + 16, 1),
        release(va + 8, 1).as_bytes(),
    ]);
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(view.load_u64(16, Ordering::Acquire), Ok(0), "it waits");
    second.submit(&[release(va, 2).as_bytes()]);
    rig.guest.wait(space, va + 8, 1, LONG).unwrap();
    assert_eq!(view.load_u64(16, Ordering::Acquire), Ok(1));
}

#[test]
fn a_wait_for_32_bits_ends_by_its_condition_alone() {
    let (rig, space, kernel) = with_store();
    let (va, view) = rig.guest.buffer(space, PAGE);
    let half = |opcode, address, value, condition: packet::Condition| packet::Fence {
        flags: packet::fence_flags::HALF,
        condition: condition as u32,
        ..fence(opcode, address, value)
    };
    let mut first = rig.guest.command_buffer(space);
    let mut second = rig.guest.command_buffer(space);
    let conditions = [
        (packet::Condition::Reached, 5, 4, 9),
        (packet::Condition::NotBefore, 0xffff_ffff, 0xffff_fffe, 1),
        (packet::Condition::Equal, 7, 8, 7),
        (packet::Condition::And, 6, 9, 4),
        (packet::Condition::Nor, 0xffff_0000, 0xffff, 0xfffe),
    ];
    for (round, (condition, value, before, after)) in (1..).zip(conditions) {
        // The other half would end the wait.
        view.store_u64(0, before << 32 | after, Ordering::Release)
            .unwrap();
        let acquire = half(packet::Opcode::FenceAcquire, va + 4, value, condition);
        first.submit(&[acquire.as_bytes(), &store(kernel, va + 16, round)]);
        std::thread::sleep(Duration::from_millis(2));
        let stored = || view.load_u64(16, Ordering::Acquire);
        assert_eq!(stored(), Ok(round - 1), "{condition:?} waits");
        let release = packet::Opcode::FenceRelease;
        let release = half(release, va + 4, after, packet::Condition::Reached);
        second.submit(&[release.as_bytes()]);
        eventually("the store", || stored() == Ok(round));
        assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(after << 32 | after));
    }
}

#[test]
fn launches_have_the_options_of_their_packets_also_when_recorded() {
    let rig = Rig::new();
    rig.backend.define("tell", 8, |launch| {
        let LaunchOptions { flags, cluster } = launch.options;
        let sum: u32 = cluster.iter().sum();
        launch.store(launch.parameter(0), u64::from(flags) << 32 | u64::from(sum))
    });
    let guest = &rig.guest;
    let space = guest.space();
    let module = guest.load_module(space, "kernel tell", 0).unwrap();
    let kernel = guest.kernel(module, "tell").unwrap().handle;
    let (va, view) = guest.buffer(space, PAGE);
    let with = |options| {
        let mut bytes = launch(kernel, va.as_bytes());
        let (mut packet, _) = packet::Launch::read_from_prefix(&bytes).unwrap();
        packet.options = options;
        packet.shape.grid = [4, 1, 1];
        bytes[..64].copy_from_slice(packet.as_bytes());
        bytes
    };
    let cooperative = with(LaunchOptions {
        flags: launch_flags::COOPERATIVE,
        cluster: [2, 1, 1],
    });
    let recording = guest.record(space, &[&cooperative]).unwrap();
    let plain = with(LaunchOptions::PLAIN);
    let mut queue = guest.command_buffer(space);
    let again = replay(recording);
    for (round, (packet, told)) in (1..).zip([
        (&cooperative[..], 1 << 32 | 4),
        (&plain, 0),
        (again.as_bytes(), 1 << 32 | 4),
    ]) {
        queue.submit(&[packet, release(va + 8, round).as_bytes()]);
        guest.wait(space, va + 8, round, LONG).unwrap();
        assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(told));
    }
    for cluster in [[4, 1, 1], [3, 1, 1], [0, 1, 1], [u32::MAX; 3]] {
        let refused = with(LaunchOptions { flags: 0, cluster });
        queue.submit(&[&refused]);
        assert_eq!(queue.wait_for_fault(), Some(Status::BadLaunch));
        let (status, offset) = guest.record(space, &[&refused]).unwrap_err();
        assert_eq!((status, offset), (Status::BadLaunch, 0));
        queue = guest.command_buffer(space);
    }
}

#[test]
fn launches_with_the_largest_parameters_run_in_a_ring_that_wraps() {
    const BYTES: usize = packet::PARAMETER_BYTES_MAX & !7;
    let rig = Rig::new();
    rig.backend.define("last", BYTES as u32, |launch| {
        let sum = launch.load(launch.parameter(0))? + launch.parameter(BYTES - 8);
        launch.store(launch.parameter(0), sum)
    });
    let guest = &rig.guest;
    let space = guest.space();
    let module = guest.load_module(space, "kernel last", 0).unwrap();
    let kernel = guest.kernel(module, "last").unwrap().handle;
    let (va, view) = guest.buffer(space, PAGE);
    let mut queue = guest.try_ring(space, ring::ring_bytes(2048)).unwrap();
    for value in 1..=10_u64 {
        let mut parameters = [0; BYTES];
        parameters[..8].copy_from_slice(va.as_bytes());
        parameters[BYTES - 8..].copy_from_slice(value.as_bytes());
        let packet = launch(kernel, &parameters);
        assert_eq!(packet.len(), 513 * packet::UNIT_BYTES);
        queue.submit(&[&packet, release(va + 8, value).as_bytes()]);
    }
    guest.wait(space, va + 8, 10, LONG).unwrap();
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(55));
}
