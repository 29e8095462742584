//! Turns on a device whose time the mediator shares out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_mediator::{GuestSession, LimitChange};
use causeway_protocol::packet;
use zerocopy::IntoBytes;

use crate::rig::*;
use crate::{LONG, launch_endless, store, with_store};

#[test]
fn a_session_that_has_used_its_share_waits_before_the_next_kernel() {
    let (rig, space, kernel) = with_store();
    rig.backend.share_time();
    // The next kernel may begin after 100 seconds.
    let piece_ns = 1_000_000_000;
    rig.backend.set_piece_ns(piece_ns);
    let guest = &rig.guest;
    let cap = |share_percent| {
        let change = LimitChange {
            share_percent: Some(share_percent),
            ..LimitChange::default()
        };
        guest.session.set_limits(&change).unwrap();
    };
    cap(Some(1));
    let (address, _view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    queue.submit(&[&store(kernel, address, 1)]);
    eventually("the turn to end", || {
        guest.session.report().statistics.device_ns == piece_ns
    });
    // A fence is no work.
    queue.submit(&[release(address + 8, 1).as_bytes()]);
    guest.wait(space, address + 8, 1, LONG).unwrap();
    queue.submit(&[&store(kernel, address, 2)]);
    std::thread::sleep(Duration::from_millis(20));
    let launches = || guest.session.report().statistics.launches;
    assert_eq!(launches(), 1, "it waits");
    cap(None);
    eventually("the second kernel", || launches() == 2);
}

#[test]
fn what_a_command_buffer_used_of_the_device_counts_though_a_reset_ends_it() {
    let rig = Rig::new();
    let piece_ns = 1_000_000;
    rig.backend.set_piece_ns(piece_ns);
    let running = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&running);
    rig.backend.define("endless", 0, move |launch| {
        flag.store(true, Ordering::Release);
        while !launch.stopped() {
            std::thread::yield_now();
        }
        Ok(())
    });
    let mut queue = launch_endless(&rig, rig.guest.space());
    // With another packet behind the kernel, the consumer does not come to rest after it.
    queue.submit(&[header(packet::Opcode::Nop, 1).as_bytes()]);
    eventually("the kernel", || running.load(Ordering::Acquire));
    rig.guest.session.reset();
    let used_ns = rig.guest.session.report().statistics.device_ns;
    assert_eq!(used_ns, piece_ns);
}
