//! Sessions in worker processes: the same guests, and processes that are killed.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

use crate::command::{Running, Scratch, alone, kvm, stop};
use crate::report;

const GPU: [&str; 2] = ["--gpu", "software,isolation=process"];

fn with_workers<'a>(words: &[&'a str]) -> Vec<&'a str> {
    words.iter().copied().chain(GPU).collect()
}

/// Worker processes of the group that `running` leads.
pub fn workers(running: &Running) -> Vec<Pid> {
    let is_worker = |pid: &Pid| {
        let command = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
        let command = command.unwrap_or_default();
        command.split(|byte| *byte == 0).nth(1) == Some(b"worker")
    };
    let mut processes = processes(running);
    processes.retain(is_worker);
    processes
}

/// Processes of the group that `running` leads, without itself.
pub fn processes(running: &Running) -> Vec<Pid> {
    let group = running.id();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let of_group = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name in parentheses: state, parent, group.
        let after = stat.rsplit(')').next().unwrap_or_default();
        after.split_whitespace().nth(2) == Some(&group.to_string())
    };
    pids.filter(|pid| *pid != group)
        .filter(of_group)
        .filter_map(Pid::from_raw)
        .collect()
}

/// Waits until `what` was printed `times` times.
pub fn await_output(running: &Running, what: &str, times: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while running.stderr().matches(what).count() < times {
        assert!(Instant::now() < deadline, "no {what}: {}", running.stderr());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_guest_passes_with_its_session_in_a_process_of_its_own() {
    if !kvm("workers") {
        return;
    }
    let _alone = alone();
    for words in [
        &["--guest", "compute"][..],
        &["--guest", "stream"],
        &["--guest", "sharing", "--vms", "2"],
        &["--guest", "hostile", "--vms", "2"],
        &["--guest", "compute", "--vcpus", "2"],
    ] {
        let scratch = Scratch::new();
        let (outcome, report) = report::run(&scratch, &with_workers(words));
        outcome.assert_passed();
        assert_eq!(report.outcome(), "pass", "{words:?}");
        for vm in report.0["vms"].as_array().unwrap() {
            assert_eq!(vm["isolation"], "process");
            assert!(vm["worker_rss_bytes"].as_u64().unwrap() > 0, "{vm}");
            assert_eq!(vm["worker_restarts"], 0, "{vm}");
        }
        if !words.contains(&"sharing") && !words.contains(&"hostile") {
            report.assert_exit_free();
        }
        let kernels = report.0["kernels"].as_array().unwrap();
        assert!(!kernels.is_empty(), "{words:?}: {}", report.0);
    }
}

#[test]
fn exits_are_the_same_with_a_worker() {
    if !kvm("exact counts with a worker") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &with_workers(&["--guest", "exits"]));
    outcome.assert_passed();
    report.phase("nothing").assert_exits(0, 0);
    report.phase("100 port loads").assert_exits(0, 100);
    report.phase("100 register loads").assert_exits(100, 0);
    report.phase("1000000 stores to RAM").assert_exits(0, 0);
    let inside = report::run(&scratch, &["--guest", "exits"]).1;
    assert_eq!(inside.0["vms"][0]["isolation"], "none");
    assert!(inside.0["vms"][0].get("worker_rss_bytes").is_none());
}

/// Starts guests that compute until they lose the device, and waits until all of them do.
fn losers(scratch: &Scratch, vms: usize) -> Running {
    let count = vms.to_string();
    let words = [
        "run",
        "--guest",
        "lost",
        "--json",
        "report.json",
        "--vms",
        &count,
    ];
    let running = scratch.start(&with_workers(&words));
    await_output(&running, "computing", vms);
    let pids = workers(&running);
    assert_eq!(pids.len(), vms);
    for pid in pids {
        let files = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap();
        let files = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
        let inherited = files
            .iter()
            .find(|file| file.contains("kvm") || file.contains("json"));
        assert_eq!(inherited, None, "of {files:?}");
    }
    running
}

/// Kills the workers of two guests that compute: each says what it has lost, and goes on; the other
/// notices nothing.
pub fn kill_one_after_the_other(running: Running) {
    let [first, second] = workers(&running)[..] else {
        panic!("two workers")
    };
    kill_process(first, Signal::KILL).unwrap();
    await_output(&running, "lost after", 1);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(running.stderr().matches("lost after").count(), 1);
    kill_process(second, Signal::KILL).unwrap();
    let outcome = running.finish();
    outcome.assert_passed();
    let said = outcome.stderr.matches("was killed by signal 9").count();
    assert!(said >= 2, "{outcome:?}");
}

#[test]
fn a_guest_whose_worker_is_killed_resets_and_goes_on_and_the_others_notice_nothing() {
    if !kvm("killed worker") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let running = losers(&scratch, 2);
    kill_one_after_the_other(running);
    let report = fs::read_to_string(scratch.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    for vm in report["vms"].as_array().unwrap() {
        assert_eq!(vm["worker_restarts"], 1, "{vm}");
    }
}

#[test]
fn workers_die_with_a_vmm_that_is_killed() {
    if !kvm("killed VMM") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let running = losers(&scratch, 2);
    kill_with_workers(&running);
    let outcome = running.finish();
    assert_eq!(outcome.code, -9, "{outcome:?}");
}

/// Kills the VMM, and waits until its workers, and what starts them, have died with it.
pub fn kill_with_workers(running: &Running) {
    // Orphans become children of this process, which can see them end.
    set_child_subreaper(Some(getpid())).unwrap();
    let pids = processes(running);
    running.signal(Signal::KILL);
    let deadline = Instant::now() + Duration::from_secs(20);
    for pid in pids {
        let status = loop {
            if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                break status;
            }
            assert!(Instant::now() < deadline, "{pid:?} is left");
            std::thread::sleep(Duration::from_millis(2));
        };
        // It may see the end of its socket before the signal reaches it.
        let has_left = status.exit_status() == Some(0);
        assert!(
            has_left || status.terminating_signal().is_some(),
            "{status:?}"
        );
    }
}

#[test]
fn signals_end_a_run_with_workers_at_once_even_if_one_hangs() {
    if !kvm("signal with workers") {
        return;
    }
    let _alone = alone();
    for hang in [false, true] {
        let scratch = Scratch::new();
        let running = losers(&scratch, 2);
        if hang {
            stop(workers(&running)[0]);
        }
        let sent = Instant::now();
        running.signal(Signal::TERM);
        let outcome = running.finish();
        assert_eq!(outcome.code, 143, "{outcome:?}");
        assert_eq!(report::read(&scratch, &outcome).outcome(), "fail");
        assert!(sent.elapsed() < Duration::from_secs(20), "{outcome:?}");
    }
}

#[test]
fn fifty_vms_one_after_the_other_leave_nothing() {
    if !kvm("fifty VMs") {
        return;
    }
    let _alone = alone();
    for round in 0..50 {
        let scratch = Scratch::new();
        if round % 10 == 3 {
            let running = losers(&scratch, 1);
            kill_process(workers(&running)[0], Signal::KILL).unwrap();
            running.finish().assert_passed();
        } else {
            // `finish` looks for processes, files and shared memory that are left.
            let words = ["run", "--guest", "exits", "--memory", "64"];
            let running = scratch.start(&with_workers(&words));
            running.finish().assert_passed();
        }
    }
}

#[test]
fn the_hidden_command_serves_nobody_who_did_not_start_it() {
    let scratch = Scratch::new();
    for words in [
        &["worker", "--number", "0", "--gpu", "software", "1", "0"][..],
        &["worker", "--number", "0", "--gpu", "software", "0", "0"],
    ] {
        let outcome = scratch.run(words);
        assert_eq!(outcome.code, 5, "{outcome:?}");
        assert!(outcome.stderr.contains("cannot serve a VM"), "{outcome:?}");
    }
}
