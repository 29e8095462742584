//! Workers that end, are ended, or do not want to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::{GuestSession, OpenError, Quota, SessionSource};
use causeway_mediator_testing::{FakeHost, ask};
use causeway_protocol::Access;
use causeway_protocol::message::{Empty, Opcode, SetAccess, Status};
use causeway_protocol::registers::status;
use rustix::process::{Signal, test_kill_process};

use super::rig::{
    ALONE, Guest, PAGE, READ, READ_WRITE, STARTER, eventually, is_alone, program, workers,
};
use crate::{Workers, kill_workers};

/// Longer than any limit that a worker is given.
const LONG: Duration = Duration::from_secs(100);

#[test]
fn a_session_in_a_worker_does_what_any_session_does() {
    let guest = Guest::open(&workers());
    assert_eq!(guest.session.status_bits(), status::READY);
    guest.works();
    // The fence is seen before its packet is counted.
    eventually("the packet is counted", || {
        guest.session.report().packets_by_name() == [("fence_release", 1)]
    });
    let report = guest.session.report();
    assert_eq!(report.statistics.failed_messages, 0);
    let worker = report.worker.unwrap();
    assert!(worker.rss_bytes > 0 && worker.restarts == 0);
    assert_eq!(worker.supplements, [b"added"]);
    guest.session.reset();
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
    assert_eq!(guest.try_space(), Err((Status::NoHello, 0)));
    guest.hello();
    guest.works();
    eventually("the second packet is counted", || {
        guest.session.report().packets_by_name() == [("fence_release", 2)]
    });

    let pid = guest.pid();
    guest.session.close();
    assert!(test_kill_process(pid).is_err(), "the process is left");
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
    assert_eq!(guest.session.status_bits(), 0);
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    assert_eq!(
        guest.session.report().packets_by_name(),
        [("fence_release", 2)]
    );
    guest.session.close();
    guest.session.reset();
    assert_eq!(guest.session.status_bits(), 0);
}

#[test]
fn a_back_end_that_is_not_to_be_had_is_told_as_the_worker_told_it() {
    let workers = Workers::new(&program("rig::worker_process", "absent"), None).unwrap();
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let refused = workers
        .open_worker(host, Quota::default(), "test")
        .err()
        .unwrap();
    assert!(
        matches!(refused, OpenError::Unavailable { .. }),
        "{refused}"
    );
    assert_eq!(refused.to_string(), "there is no such GPU: choose another");
}

#[test]
fn a_caller_may_give_up_a_worker_that_hangs_before_it_has_a_session() {
    let workers = Workers::new(&program("rig::worker_process", "hangs"), None).unwrap();
    for is_ahead in [false, true] {
        if is_ahead {
            workers.prepare(1).unwrap();
        }
        let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
        let mut asked = 0;
        let mut gives_up = || {
            asked += 1;
            asked == 3
        };
        let given_up = workers.open(host, Quota::default(), "test", &mut gives_up);
        assert!(matches!(given_up.err(), Some(OpenError::GivenUp { .. })));
        assert!(workers.spare_ids().is_empty());
        assert_eq!(children(), 0, "a process is left");
    }
}

/// Returns how many processes of this test's program run, except for itself.
fn children() -> usize {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let of_this = |process: &std::fs::DirEntry| {
        let read = |name| std::fs::read_to_string(process.path().join(name)).unwrap_or_default();
        // After the name in parentheses: state, parent.
        let (status, command) = (read("stat"), read("cmdline"));
        let after = status.rsplit(')').next().unwrap_or_default();
        after.split_whitespace().nth(1) == Some(&own) && command.contains("\0hangs\0")
    };
    processes.filter(of_this).count()
}

#[test]
fn a_program_that_is_no_worker_is_told_with_how_it_ended() {
    let program = crate::Program {
        path: "/bin/false".into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        starter: vec![STARTER.into()],
        groups: None,
    };
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let workers = Workers::new(&program, None).unwrap();
    let refused = workers
        .open_worker(host, Quota::default(), "vm7")
        .err()
        .unwrap();
    let said = refused.to_string();
    assert_eq!(said, "the worker process of vm7 ended with code 1");
}

#[test]
fn a_worker_can_gain_no_rights_and_dumps_no_memory() {
    let guest = Guest::open(&workers());
    let file = |name| {
        let path = format!("/proc/{}/{name}", guest.pid().as_raw_nonzero());
        std::fs::read_to_string(path).unwrap()
    };
    let tasks = format!("/proc/{}/task", guest.pid().as_raw_nonzero());
    let tasks = std::fs::read_dir(tasks).unwrap().flatten();
    let has = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        [
            "NoNewPrivs:\t1\n",
            "CapPrm:\t0000000000000000\n",
            "Seccomp:\t2\n",
        ]
        .iter()
        .all(|line| status.contains(line))
    };
    let threads: Vec<_> = tasks.map(has).collect();
    assert!(
        threads.len() > 1 && threads.iter().all(|has| *has),
        "{threads:?}"
    );
    let core = |line: &&str| line.starts_with("Max core file size");
    let limits = file("limits");
    let sizes: Vec<_> = limits
        .lines()
        .find(core)
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(sizes[4..6], ["0", "0"]);
}

#[test]
fn a_guest_whose_worker_is_killed_is_told_resets_and_goes_on() {
    let guest = Guest::open(&workers());
    let space = guest.space();
    let (address, _memory) = guest.buffer(space, PAGE);
    let queue = guest.command_buffer(space);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, address, 1, LONG));
        std::thread::sleep(Duration::from_millis(20));
        guest.signal(Signal::KILL);
        assert_eq!(waiter.join().unwrap(), Err((Status::DeviceLost, 0)));
    });
    eventually("loss", || guest.session.status_bits() == status::LOST);
    eventually("word in the command buffer", || {
        queue.producer.fault() == u64::from(Status::DeviceLost as u32)
    });
    assert!(
        guest.fault().1.contains("was killed by signal 9"),
        "{}",
        guest.fault().1
    );
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    guest.hello();
    assert!(!guest.host.placements().is_empty(), "fences stay readable");
    assert!(guest.session.report().fault.unwrap().contains("signal 9"));

    guest.session.reset();
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
    assert_eq!(guest.session.status_bits(), status::READY);
    guest.hello();
    guest.works();
    let report = guest.session.report();
    assert_eq!(report.fault, None);
    assert_eq!(report.worker.unwrap().restarts, 1);
}

#[test]
fn what_a_lost_session_refuses_is_counted_and_what_a_closed_one_refuses_is_not() {
    let guest = Guest::open(&workers());
    guest.signal(Signal::KILL);
    eventually("loss", || guest.session.status_bits() == status::LOST);
    let failed = || guest.session.report().statistics.failed_messages;
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    assert_eq!(failed(), 1);
    guest.session.close();
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    assert_eq!(failed(), 1);
}

#[test]
fn a_worker_that_hangs_holds_up_neither_reset_nor_close() {
    let workers = workers();
    let guest = Guest::open(&workers);
    let first = guest.pid();
    guest.stop();
    guest.session.reset();
    assert!(test_kill_process(first).is_err(), "it was replaced");
    guest.hello();
    guest.works();
    let second = guest.pid();
    guest.stop();
    guest.session.close();
    assert!(test_kill_process(second).is_err());
}

#[test]
fn a_worker_that_takes_no_channel_holds_up_no_reset_though_all_others_are_in_use() {
    let guest = Guest::open(&workers());
    guest.stop();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| guest.try_space());
        // More than fit the control socket.
        (0..300).for_each(|_| guest.session.interrupt());
        guest.session.reset();
        assert!(stuck.join().unwrap().is_err());
    });
    assert_eq!(guest.session.status_bits(), status::READY);
}

#[test]
fn all_workers_of_a_process_can_be_killed_whatever_they_do() {
    if !is_alone("endings::all_workers_of_a_process_can_be_killed_whatever_they_do") {
        return;
    }
    assert_eq!(kill_workers(LONG), 0);
    let workers = workers();
    let guests = [(); 2].map(|()| Guest::open(&workers));
    guests[0].stop();
    let pids = guests.each_ref().map(Guest::pid);
    // With the process that starts them.
    assert_eq!(kill_workers(LONG), 3);
    for pid in pids {
        // A zombie has no arguments.
        let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        let lives = std::fs::read(path).is_ok_and(|line| !line.is_empty());
        assert!(!lives, "it was not waited for");
    }
    for guest in &guests {
        eventually("loss", || guest.session.status_bits() == status::LOST);
    }
    drop(guests);
    assert!(pids.iter().all(|pid| test_kill_process(*pid).is_err()));
}

#[test]
fn a_halted_session_gives_its_callers_back_whatever_its_worker_does() {
    let guest = Guest::open(&workers());
    let space = guest.space();
    let (address, _memory) = guest.buffer(space, PAGE);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, address, 1, LONG));
        std::thread::sleep(Duration::from_millis(20));
        guest.session.interrupt();
        let outcome = waiter.join().unwrap();
        assert_eq!(outcome, Err((Status::TimedOut, 0)));
        assert!(begun.elapsed() < LONG, "it was interrupted");
        guest.stop();
        let stuck = scope.spawn(|| guest.try_space());
        std::thread::sleep(Duration::from_millis(20));
        guest.session.halt();
        assert_eq!(stuck.join().unwrap(), Err((Status::DeviceLost, 0)));
    });
}

#[test]
fn many_sessions_one_after_the_other_leave_nothing() {
    let workers = workers();
    let used = || {
        let count = |path| std::fs::read_dir(path).unwrap().count();
        count("/proc/self/fd")
    };
    Guest::open(&workers).works();
    let mut pids = Vec::new();
    let before = used();
    for round in 0..20 {
        let guest = Guest::open(&workers);
        pids.push(guest.pid());
        guest.works();
        if round % 4 == 0 {
            guest.signal(Signal::KILL);
        }
        drop(guest);
    }
    for pid in pids {
        assert!(test_kill_process(pid).is_err(), "{pid:?} is left");
    }
    // Other tests of this process open and close descriptors, too; twenty workers would have left a
    // hundred.
    assert!(
        used() < before + 60,
        "{} descriptors, {before} before",
        used()
    );
}

#[test]
fn placements_change_and_fail_as_the_host_says() {
    let guest = Guest::open(&workers());
    let memory = guest.page();
    let offset = guest.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    let placed = guest.host.placements();
    assert_eq!(placed[&offset].bytes, 4096);
    let request = SetAccess {
        address: offset,
        access: READ,
        ..SetAccess::default()
    };
    ask::<_, Empty>(&guest.session, Opcode::SetAccess, &request).unwrap();
    assert_eq!(guest.host.placements()[&offset].access, Access::Read);
    guest.host.fail("place", true);
    let refused = guest.map_cpu(memory, 0, PAGE, READ_WRITE);
    assert_eq!(refused, Err((Status::NoMemory, 0)));
    guest.host.fail("place", false);
}

#[test]
fn workers_have_the_variables_that_are_for_them() {
    if !is_alone("endings::workers_have_the_variables_that_are_for_them") {
        return;
    }
    let script = format!("test -n \"${{{ALONE}+set}}\" && exit 5; exit 6");
    let program = crate::Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: Vec::new(),
        starter: vec![STARTER.into()],
        groups: None,
    };
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let workers = Workers::new(&program, None).unwrap();
    let ended = workers.open_worker(host, Quota::default(), "test");
    let said = ended.err().unwrap().to_string();
    assert_eq!(said, "the worker process of test ended with code 5");
}

#[test]
fn when_no_more_workers_are_started_the_others_live_on() {
    let workers = workers();
    let guest = Guest::open(&workers);
    workers.stop_starting();
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let refused = workers.open_worker(host, Quota::default(), "test");
    let refused = refused.err().unwrap();
    assert!(matches!(refused, OpenError::Start { .. }), "{refused}");
    guest.works();
}

#[test]
fn what_a_worker_placed_whose_session_does_not_begin_is_removed() {
    let workers = Workers::new(&program("puppet::puppet_process", "leaver"), None).unwrap();
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let opened = workers.open_worker(Arc::clone(&host) as _, Quota::default(), "test");
    // On a busy host it may open before the worker leaves.
    drop(opened);
    // The thread that placed it may be the last one with the worker.
    eventually("the removal", || host.placements().is_empty());
}
