//! Watching workers while their guests use them.

use std::time::Duration;

use causeway_mediator::GuestSession;
use causeway_protocol::registers::status;
use rustix::process::{Signal, kill_process, test_kill_process};

use super::rig::{Guest, eventually, workers};

#[test]
fn a_watcher_sees_what_a_session_in_a_worker_does() {
    let guest = Guest::open(&workers());
    guest.works();
    eventually("the packet is counted", || {
        let activity = guest.session.activity().unwrap();
        activity.statistics.packets == 1 && activity.statistics.command_buffers == 1
    });
    let activity = guest.session.activity().unwrap();
    let statistics = activity.statistics;
    assert!(statistics.memory_used_bytes > 0 && statistics.batches > 0);
    assert!(statistics.memory_limit_bytes >= statistics.memory_used_bytes);
    assert!(statistics.queue_units > 0 && !activity.lost);
    assert_eq!(statistics.queued_units, 0);
}

#[test]
fn a_worker_that_does_not_answer_a_watcher_is_not_ended_for_it() {
    let guest = Guest::open(&workers());
    guest.works();
    kill_process(guest.pid(), Signal::STOP).unwrap();
    // One of its threads may run on for a moment.
    eventually("the worker stops", || guest.session.activity().is_none());
    assert_eq!(guest.session.activity(), None);
    // Longer than a worker may take for anything that its guest waits for.
    std::thread::sleep(Duration::from_secs(3));
    kill_process(guest.pid(), Signal::CONT).unwrap();
    eventually("the worker answers", || guest.session.activity().is_some());
    assert_eq!(guest.session.status_bits(), status::READY);
    test_kill_process(guest.pid()).unwrap();
    guest.works();
}

#[test]
fn counts_do_not_go_back_when_a_worker_takes_over() {
    let guest = Guest::open(&workers());
    guest.works();
    eventually("the packet is counted", || {
        guest.session.activity().unwrap().statistics.packets == 1
    });
    kill_process(guest.pid(), Signal::KILL).unwrap();
    eventually("the device is lost", || {
        guest.session.status_bits() == status::LOST
    });
    let activity = guest.session.activity().unwrap();
    assert!(
        activity.lost
            && activity.statistics.packets == 1
            && activity.statistics.memory_used_bytes == 0
    );
    guest.session.reset();
    guest.hello();
    guest.works();
    eventually("the second packet is counted, too", || {
        let activity = guest.session.activity().unwrap();
        activity.statistics.packets == 2 && !activity.lost
    });
    guest.session.close();
    let activity = guest.session.activity().unwrap();
    assert!(activity.statistics.packets == 2 && !activity.lost);
}
