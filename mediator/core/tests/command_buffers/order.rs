//! Packets are executed in order.

use causeway_mediator::GuestSession;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_protocol::packet;
use zerocopy::IntoBytes;

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
