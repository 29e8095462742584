//! Workers that are started ahead of their sessions.

use std::time::{Duration, Instant};

use causeway_mediator::{GuestSession, OpenError, Quota};
use causeway_mediator_testing::FakeHost;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::rig::{Guest, program, workers};
use crate::Workers;

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap()
}

#[test]
fn a_session_takes_the_oldest_spare_and_the_next_another() {
    let workers = workers();
    workers.prepare(2).unwrap();
    workers.await_prepared(&mut || false).unwrap();
    let spares = workers.spare_ids();
    assert_eq!(spares.len(), 2);
    let first = Guest::open(&workers);
    assert_eq!((first.pid(), first.session.id()), (pid(spares[0]), 1));
    first.works();
    assert_eq!(workers.spare_ids(), spares[1..]);
    // The second has not been waited for.
    let second = Guest::open(&workers);
    assert_eq!((second.pid(), second.session.id()), (pid(spares[1]), 2));
    second.works();
    let third = Guest::open(&workers);
    assert_eq!(third.session.id(), 3);
    assert!(!spares.contains(&(third.pid().as_raw_nonzero().get().cast_unsigned())));
    third.works();
}

#[test]
fn a_used_worker_is_no_spare_again() {
    let workers = workers();
    workers.prepare(1).unwrap();
    let guest = Guest::open(&workers);
    let used = guest.pid();
    workers.prepare(1).unwrap();
    guest.session.close();
    assert!(test_kill_process(used).is_err(), "it has ended");
    let spares = workers.spare_ids();
    assert!(spares.len() == 1 && pid(spares[0]) != used);
}

#[test]
fn a_spare_that_dies_before_its_session_is_replaced_by_another_process() {
    let workers = workers();
    workers.prepare(1).unwrap();
    workers.await_prepared(&mut || false).unwrap();
    let dead = pid(workers.spare_ids()[0]);
    kill_process(dead, Signal::KILL).unwrap();
    let guest = Guest::open(&workers);
    assert_eq!(guest.session.id(), 1, "the number is not lost");
    assert_ne!(guest.pid(), dead);
    guest.works();
}

#[test]
fn a_dead_spare_does_not_count() {
    let workers = workers();
    workers.prepare(1).unwrap();
    let dead = workers.spare_ids();
    kill_process(pid(dead[0]), Signal::KILL).unwrap();
    super::rig::eventually("another spare", || {
        workers.prepare(1).unwrap();
        workers.spare_ids() != dead
    });
    let living = workers.spare_ids();
    assert_eq!(living.len(), 1);
    workers.prepare(1).unwrap();
    assert_eq!(workers.spare_ids(), living, "it counts");
    Guest::open(&workers).works();
}

#[test]
fn spares_end_with_their_owner() {
    let workers = workers();
    workers.prepare(2).unwrap();
    let spares = workers.spare_ids();
    drop(workers);
    for spare in spares {
        assert!(test_kill_process(pid(spare)).is_err(), "{spare} is left");
    }
}

#[test]
fn a_back_end_that_is_absent_is_told_before_a_session_comes() {
    let workers = Workers::new(&program("rig::worker_process", "absent"), None).unwrap();
    workers.prepare(1).unwrap();
    let refused = workers.await_prepared(&mut || false).unwrap_err();
    assert!(matches!(refused, OpenError::Unavailable { .. }));
    assert_eq!(refused.to_string(), "there is no such GPU: choose another");
    assert_eq!(workers.spare_ids(), []);
    // Not waited for, the session is told.
    workers.prepare(1).unwrap();
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let refused = workers
        .open_worker(host, Quota::default(), "test")
        .err()
        .unwrap();
    assert_eq!(refused.to_string(), "there is no such GPU: choose another");
}

/// Waits until a killed process is a zombie.
fn await_end(id: u32) {
    super::rig::eventually("its end", || {
        let path = format!("/proc/{id}/cmdline");
        std::fs::read(path).is_ok_and(|line| line.is_empty())
    });
}

/// Returns the partition with which a worker was started: its last argument.
fn partition(worker: Pid) -> String {
    let path = format!("/proc/{}/cmdline", worker.as_raw_nonzero());
    let line = std::fs::read_to_string(path).unwrap();
    let words = line.trim_end_matches('\0').rsplit('\0');
    words.take(1).collect()
}

#[test]
fn the_partition_of_a_session_that_ends_is_free_again() {
    let workers = workers();
    let [first, second] = [(); 2].map(|()| Guest::open(&workers));
    assert_eq!(partition(first.pid()), "0");
    assert_eq!(partition(second.pid()), "1");
    // A worker that replaces another has its partition.
    first.signal(Signal::KILL);
    first.session.reset();
    assert_eq!(partition(first.pid()), "0");
    first.session.close();
    let third = Guest::open(&workers);
    assert_eq!(
        (partition(third.pid()).as_str(), third.session.id()),
        ("0", 3)
    );
    let fourth = Guest::open(&workers);
    assert_eq!(partition(fourth.pid()), "2");
}

#[test]
fn a_spare_holds_its_partition_until_its_session_ends_or_it_fails() {
    let workers = workers();
    workers.prepare(2).unwrap();
    let spares = workers.spare_ids();
    let first = Guest::open(&workers);
    assert_eq!(
        (first.pid(), partition(first.pid())),
        (pid(spares[0]), "0".into())
    );
    drop(first);
    // The other spare, which holds number 1, fails.
    kill_process(pid(spares[1]), Signal::KILL).unwrap();
    let second = Guest::open(&workers);
    assert_eq!(
        (second.session.id(), partition(second.pid())),
        (2, "0".into())
    );
}

#[test]
fn the_end_of_a_session_does_not_wait_for_a_worker_that_a_reset_starts() {
    let name = format!("causeway-worker-{}-hangs", std::process::id());
    let hangs = std::env::temp_dir().join(name);
    let seen = hangs.with_extension("seen");
    let program = program("rig::worker_process", hangs.to_str().unwrap());
    let workers = Workers::new(&program, None).unwrap();
    let guest = Guest::open(&workers);
    std::fs::write(&hangs, "").unwrap();
    guest.signal(Signal::KILL);
    std::thread::scope(|scope| {
        let reset = scope.spawn(|| guest.session.reset());
        super::rig::eventually("the start", || seen.exists());
        let begun = Instant::now();
        guest.session.close();
        // A start is waited for twice as long, and twice.
        assert!(begun.elapsed() < Duration::from_secs(30));
        reset.join().unwrap();
    });
    for file in [hangs, seen] {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(guest.session.process_id(), None);
}

#[test]
fn where_starts_are_slow_a_worker_waits_to_take_the_place_of_a_lost_one() {
    let workers = Workers::new(&program("rig::worker_process", "slow"), None).unwrap();
    let [first, second] = [(); 2].map(|()| Guest::open(&workers));
    assert_eq!(workers.successor_id(), None, "nobody has needed one");
    let replace = |guest: &Guest| {
        guest.signal(Signal::KILL);
        guest.session.reset();
        guest.hello();
        guest.works();
    };
    replace(&first);
    let waiting = workers.successor_id().expect("the start was slow");
    assert_eq!(partition(pid(waiting)), "0");
    // It is for one session, and there is no second one.
    replace(&second);
    assert_eq!(workers.successor_id(), Some(waiting));
    assert_ne!(second.pid(), pid(waiting));
    replace(&first);
    assert_eq!(first.pid(), pid(waiting));
    // That start was not slow, but the next one would be.
    let next = workers.successor_id().expect("another");
    assert_ne!(next, waiting);
    first.session.close();
    assert!(
        test_kill_process(pid(next)).is_err(),
        "nobody wants it any more"
    );
    replace(&second);
    let last = workers.successor_id().expect("one for the other session");
    assert_eq!(partition(pid(last)), "1");
    kill_process(pid(last), Signal::KILL).unwrap();
    await_end(last);
    replace(&second);
    assert_ne!(second.pid(), pid(last));
    assert!(workers.successor_id().is_some());
    drop((first, second));
    assert_eq!(workers.successor_id(), None, "nobody is left to want one");
    drop(workers);
    assert!(test_kill_process(pid(last)).is_err());
}

#[test]
fn a_worker_that_died_while_it_waited_to_take_a_place_makes_room_for_another() {
    let workers = Workers::new(&program("rig::worker_process", "slow"), None).unwrap();
    let [first, second] = [(); 2].map(|()| Guest::open(&workers));
    let replace = |guest: &Guest| {
        guest.signal(Signal::KILL);
        guest.session.reset();
        guest.hello();
        guest.works();
    };
    replace(&first);
    let dead = workers.successor_id().expect("the start was slow");
    kill_process(pid(dead), Signal::KILL).unwrap();
    await_end(dead);
    replace(&second);
    let next = workers.successor_id().expect("another");
    assert_eq!(partition(pid(next)), "1");
    // It waits for the other session, so the end of this one changes nothing.
    first.session.close();
    replace(&second);
    assert_eq!(second.pid(), pid(next));
}
