//! `causeway stat`, and the sockets at which processes with guests answer.

mod live;
mod sockets;
mod users;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bare_images::elf;
use crate::command::{Outcome, Running, Scratch, kvm};
use crate::report;
use crate::schema;
use crate::workers::await_output;

pub use users::as_nobody;

/// What the command ends with when an argument is at fault.
const USAGE: i32 = 2;
const TERMINATED: i32 = 143;
/// Number of SIGKILL, negative as an outcome's code is.
const KILLED: i32 = -9;
const PATIENCE: Duration = Duration::from_secs(60);
/// Stores to a port that nobody has, without end.
const EXITING: [u8; 4] = [0xe6, 0x80, 0xeb, 0xfc];
/// What the VMM counts them as.
const STORES: &str = "io:unclaimed:stray";

/// Starts a VM that exits all the time, with more arguments.
pub fn start_exiting(scratch: &Scratch, more: &[&str]) -> Running {
    let image = scratch.file("guest.elf", &elf(&EXITING));
    let words = ["run", "--kernel", &image, "--memory", "64"];
    let running = scratch.start(&[&words[..], more].concat());
    await_published(scratch, &running);
    // It can be found before its guests run.
    let pid = running.id().to_string();
    let exits = |record: &Value| record["vm"]["vmm_exits"][STORES].is_u64();
    let look = || records(&stat(scratch, &[&pid, "--json", "--once"]));
    let deadline = Instant::now() + PATIENCE;
    while !look().iter().all(exits) {
        assert!(Instant::now() < deadline, "{}", running.stderr());
    }
    running
}

/// Waits until a process can be found.
pub fn await_published(scratch: &Scratch, running: &Running) {
    let socket = scratch.runtime().join(running.id().to_string());
    let deadline = Instant::now() + PATIENCE;
    // Its lock is there while it starts.
    while !socket.exists() || socket.with_extension("lock").exists() {
        assert!(Instant::now() < deadline, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a VM that would run on, by a signal, and checks that it leaves nothing.
pub fn end(running: Running) -> Outcome {
    running.signal(Signal::TERM);
    let outcome = running.finish();
    assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
    outcome
}

/// Runs `stat` in the place of `scratch`, whose own outputs are taken.
pub fn stat(scratch: &Scratch, words: &[&str]) -> Outcome {
    let beside = Scratch::beside(scratch);
    beside.run(&[&["stat"], words].concat())
}

/// The objects that `stat` printed.
#[track_caller]
pub fn records(outcome: &Outcome) -> Vec<Value> {
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let lines = outcome.stdout.lines();
    let records: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    for record in &records {
        assert_eq!(record["schema"], "causeway.stat/1");
        schema::assert_valid(record);
    }
    records
}

#[test]
fn exits_of_a_running_vm_are_seen_by_reason() {
    if !kvm("stat") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["--vcpus", "2"]);
    let pid = running.id().to_string();
    let words = [&pid, "--json", "--interval-ms", "200", "--count", "2"];
    let records = records(&stat(&scratch, &words));
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record["pid"].to_string(), pid);
        assert_eq!(
            (&record["guest"], &record["state"]),
            (&"vm0".into(), &"runs".into())
        );
        assert!(record["interval_ns"].as_u64().unwrap() > 0);
        let vm = &record["vm"];
        assert_eq!(
            (&vm["vcpus"], &vm["memory_bytes"]),
            (&2.into(), &(64 << 20).into())
        );
        let stores = vm["vmm_exits_per_s"][STORES].as_f64().unwrap();
        assert!(stores > 0.0, "{record}");
        // Some KVMs keep no statistics, and some count what they emulate as nothing.
        if let Some(exits) = vm["exits_per_s"].as_f64() {
            assert!(exits > 0.0, "{record}");
        }
        assert_eq!(record["session"]["lost"], false);
        assert_eq!(record["aperture"]["used_bytes"], 0);
    }
    let counted = |n: usize| records[n]["vm"]["vmm_exits"][STORES].as_u64();
    assert!(counted(1) > counted(0), "{records:?}");
    end(running);
}

#[test]
fn once_has_the_rates_of_the_whole_life_and_all_has_every_vm() {
    if !kvm("stat --all") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["--vms", "3"]);
    let records = records(&stat(&scratch, &["--all", "--json", "--once"]));
    let guests: Vec<_> = records
        .iter()
        .map(|r| r["guest"].as_str().unwrap())
        .collect();
    assert_eq!(guests, ["vm0", "vm1", "vm2"]);
    for record in &records {
        assert_eq!(record["interval_ns"], record["ran_ns"]);
        assert_eq!(record["command"], "run");
    }
    end(running);
}

#[test]
fn once_without_a_terminal_is_a_table_of_all_vms() {
    if !kvm("stat --once") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["--vms", "2"]);
    let outcome = stat(&scratch, &["--all", "--once"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    let lines: Vec<Vec<&str>> = outcome
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let pid = running.id().to_string();
    assert_eq!(lines.len(), 3, "{outcome:?}");
    assert_eq!(lines[0][..3], ["PID", "GUEST", "STATE"]);
    for (line, guest) in lines[1..].iter().zip(["vm0", "vm1"]) {
        assert_eq!(line[..3], [pid.as_str(), guest, "runs"]);
        // It uses no GPU.
        assert!(line[5..].starts_with(&["0%", "0", "s"]), "{line:?}");
    }
    end(running);
}

#[test]
fn what_a_guest_does_with_its_gpu_is_seen_wherever_its_session_is() {
    if !kvm("stat of a session") {
        return;
    }
    for gpu in ["software,cores=1", "software,cores=1,isolation=process"] {
        let scratch = Scratch::new();
        let running = scratch.start(&["run", "--guest", "lost", "--gpu", gpu]);
        await_output(&running, "computing", 1);
        let pid = running.id().to_string();
        let words = [&pid, "--json", "--interval-ms", "300", "--count", "1"];
        let record = records(&stat(&scratch, &words)).remove(0);
        let session = &record["session"];
        let share = session["busy_share"].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{record}");
        // Fills are no kernels.
        let launches = session["launches"].as_u64().unwrap();
        assert_eq!(session["kernel_ns"].as_u64().unwrap() > 0, launches > 0);
        for figure in ["packets", "fills", "written_bytes", "busy_ns"] {
            assert!(
                session["per_s"][figure].as_f64().unwrap() > 0.0,
                "{figure}: {record}"
            );
        }
        for figure in [
            "memory_used_bytes",
            "command_buffers",
            "allocations",
            "queue_units",
        ] {
            assert!(session[figure].as_u64().unwrap() > 0, "{figure}: {record}");
        }
        assert!(
            record["aperture"]["used_bytes"].as_u64().unwrap() > 0,
            "{record}"
        );
        assert_eq!(record["gpu"], gpu);
        end(running);
    }
}

#[test]
fn a_watcher_is_told_when_the_process_ends() {
    if !kvm("stat to the end") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &[]);
    let pid = running.id().to_string();
    let beside = Scratch::beside(&scratch);
    let watcher = beside.start(&["stat", &pid, "--json", "--interval-ms", "50"]);
    let deadline = Instant::now() + PATIENCE;
    while watcher.stdout().lines().count() < 2 {
        assert!(Instant::now() < deadline, "{}", watcher.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    end(running);
    let outcome = watcher.finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(
        outcome.stderr.contains(&format!("process {pid} has ended")),
        "{outcome:?}"
    );
}

#[test]
fn what_cannot_be_watched_is_named_with_the_way_out() {
    let scratch = Scratch::new();
    let own = std::process::id().to_string();
    let refused = |words: &[&str], parts: &[&str]| {
        stat(&scratch, words).assert_refused(USAGE, parts);
    };
    refused(&[&own, "--json"], &[&own, "has no guests", "--all"]);
    refused(
        &["5000000", "--json"],
        &["process 5000000 does not exist", "--all"],
    );
    refused(&["5000000"], &["needs a terminal", "--json", "--once"]);
    refused(&["5000000", "--once"], &["does not exist", "--all"]);
    refused(
        &[&own, "--json", "--interval-ms", "1"],
        &["invalid value 1 for --interval-ms", "20"],
    );
    refused(&["0", "--json"], &["0"]);
    refused(&[], &["PID"]);
    refused(&["1", "--all"], &["--all"]);
    let nothing = stat(&scratch, &["--all", "--json"]);
    assert_eq!(
        (nothing.code, nothing.stdout.as_str()),
        (0, ""),
        "{nothing:?}"
    );
    assert!(nothing.stderr.contains("nothing to show"), "{nothing:?}");
}

#[test]
fn a_process_that_is_stopped_is_told_from_one_that_is_gone() {
    if !kvm("stat of a stopped run") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &[]);
    let pid = running.id().to_string();
    running.stop();
    stat(&scratch, &[&pid, "--json"]).assert_refused(USAGE, &[&pid, "does not answer", "CONT"]);
    let all = stat(&scratch, &["--all", "--json", "--once"]);
    assert!(all.stderr.contains("does not answer"), "{all:?}");
    running.signal(Signal::CONT);
    assert_eq!(
        records(&stat(&scratch, &[&pid, "--json", "--once"])).len(),
        1
    );
    end(running);
}

#[test]
fn what_a_killed_run_leaves_is_removed_by_the_next_who_looks() {
    if !kvm("stat after a kill") {
        return;
    }
    let scratch = Scratch::new();
    for words in [&["--all", "--json", "--once"][..], &["PID", "--json"]] {
        let running = start_exiting(&scratch, &[]);
        let pid = running.id().to_string();
        let socket = scratch.runtime().join(&pid);
        running.signal(Signal::KILL);
        assert_eq!(running.finish().code, KILLED);
        assert!(socket.exists());
        let words = words
            .iter()
            .map(|word| if *word == "PID" { &*pid } else { word });
        let outcome = stat(&scratch, &words.collect::<Vec<_>>());
        let told = ["nothing to show", "does not exist"];
        assert!(
            told.iter().any(|told| outcome.stderr.contains(told)),
            "{outcome:?}"
        );
        assert!(!scratch.runtime().exists(), "the folder is left");
    }
}

#[test]
fn a_guest_that_is_watched_all_the_time_exits_as_often_as_one_that_is_not() {
    if !kvm("stat beside exact counts") {
        return;
    }
    let scratch = Scratch::new();
    let running = scratch.start(&report::words(&["--guest", "exits"]));
    let socket = scratch.runtime().join(running.id().to_string());
    let mut answers = 0;
    let deadline = Instant::now() + PATIENCE;
    while !scratch.path("report.json").exists() && Instant::now() < deadline {
        answers += u32::from(sockets::snapshot(&socket).is_some());
    }
    let outcome = running.finish();
    outcome.assert_passed();
    assert!(answers > 0, "{outcome:?}");
    let report = report::read(&scratch, &outcome);
    report.phase("nothing").assert_exits(0, 0);
    report.phase("100 port loads").assert_exits(0, 100);
    report.phase("100 register loads").assert_exits(100, 0);
    report.phase("1000000 stores to RAM").assert_exits(0, 0);
}
