//! What watchers see of command buffers.

use causeway_mediator::{Activity, Bursts, GuestSession};
use causeway_protocol::message::*;
use causeway_protocol::packet::{CopyRange, Fill, Opcode};
use causeway_protocol::ring::{CONSUMER, Positions};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

use crate::rig::*;
use crate::{define_endless, launch_endless, with_store};

#[test]
fn what_waits_in_rings_is_seen_whatever_the_guest_makes_of_its_words() {
    let rig = Rig::new();
    let running = define_endless(&rig);
    let space = rig.guest.space();
    let mut queue = launch_endless(&rig, space);
    eventually("the kernel to run", || running.load(Ordering::Acquire));
    let activity = || rig.guest.session.activity().unwrap();
    assert_eq!(activity().statistics.command_buffers, 1);
    let units = activity().statistics.queue_units;
    assert!(units > 0);
    let nop = header(Opcode::Nop, 1);
    let before = activity().statistics.queued_units;
    queue.submit(&[nop.as_bytes(), nop.as_bytes(), nop.as_bytes()]);
    assert_eq!(activity().statistics.queued_units, before + 3);
    // The word that the guest reads is not what is believed.
    let ring = queue.producer.memory();
    ring.store_u64(CONSUMER as u64, u64::MAX, Ordering::SeqCst)
        .unwrap();
    assert_eq!(activity().statistics.queued_units, before + 3);
    for claimed in [u64::MAX, 1 << 40] {
        queue.producer.set_producer(claimed);
        assert_eq!(
            activity().statistics.queued_units,
            units,
            "no more than there are"
        );
    }
    rig.guest.session.reset();
    let after = activity().statistics;
    assert_eq!((after.command_buffers, after.queue_units), (0, 0));
    assert_eq!(after.queued_units, 0);
}

#[test]
fn launches_and_bytes_are_counted_and_a_loss_is_seen() {
    let (rig, space, kernel) = with_store();
    let guest = &rig.guest;
    let (address, _view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    let fill = Fill {
        header: header(Opcode::Fill, 1),
        destination: address,
        length: 64,
        pattern: 0,
        width: 1,
        ..Fill::default()
    };
    let copy = CopyRange {
        header: header(Opcode::Copy, 1),
        destination: address,
        source: address + 1024,
        length: 1000,
        ..CopyRange::default()
    };
    let stored = crate::store(kernel, address, 1);
    queue.submit(&[&stored, fill.as_bytes(), copy.as_bytes(), &stored]);
    let activity = || guest.session.activity().unwrap();
    eventually("four packets", || activity().statistics.packets == 4);
    let Activity {
        statistics: now,
        lost,
    } = activity();
    assert_eq!((now.launches, now.fills, now.copies), (2, 1, 1));
    assert_eq!(now.written_bytes, 1064);
    assert!(now.memory_used_bytes > 0 && !lost);
    queue.submit(&[&crate::store(kernel, 8, 1)]);
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    eventually("the loss", || activity().lost);
    guest.session.reset();
    assert!(!activity().lost && activity().statistics.launches >= 2);
    assert_eq!(activity().statistics.memory_used_bytes, 0);
}

#[test]
fn all_rings_of_a_session_count() {
    let rig = Rig::new();
    let space = rig.guest.space();
    let units = || rig.guest.session.activity().unwrap().statistics.queue_units;
    let _first = rig.guest.command_buffer(space);
    let one = units();
    let _second = rig.guest.command_buffer(space);
    assert_eq!(units(), 2 * one);
}

#[test]
fn an_observer_hears_when_a_command_buffer_begins_and_ends_work() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let heard = Arc::<Mutex<Vec<_>>>::default();
    let told = Arc::clone(&heard);
    let tell = move |it: Bursts| told.lock().push((it.under_way, it.begun));
    guest.session.observe_work(tell, |_| {});
    let space = guest.space();
    let (address, _view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    let fill = Fill {
        header: header(Opcode::Fill, 1),
        destination: address,
        length: 64,
        width: 1,
        ..Fill::default()
    };
    queue.submit(&[fill.as_bytes()]);
    eventually("the end of the fill", || heard.lock().len() >= 2);
    assert_eq!(*heard.lock(), [(1, 1), (0, 1)]);
}
