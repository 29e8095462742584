//! `--sandbox`: how worker processes of the real command are confined, and what happens where the
//! host lacks a mechanism for that.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::command::{Outcome, Running, Scratch, alone, kvm};
use crate::report;
use crate::standin::Machine;
use crate::workers::{await_output, workers};

const USAGE: i32 = 2;
const GPU: i32 = 8;

/// Words of a server with one worker, which is confined by the time that the server listens.
const SERVE: [&str; 8] = [
    "serve",
    "--socket",
    "socket",
    "--gpu",
    "software,isolation=process",
    "--spare-workers",
    "1",
    "--sandbox",
];

/// Makes a line of shell run in a user namespace in which the kernel makes no other.
const FORBID: &str = "echo 0 > /proc/sys/user/max_user_namespaces";

fn serve(scratch: &Scratch, how: &str) -> Running {
    let words: Vec<_> = SERVE.into_iter().chain([how]).collect();
    let running = scratch.start(&words);
    await_output(&running, "causeway: serving", 1);
    running
}

fn end(running: Running) -> Outcome {
    running.signal(Signal::TERM);
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    outcome
}

/// Starts the command where new user namespaces are forbidden; `None` if that cannot be made here.
fn start_without_namespaces(scratch: &Scratch, words: &[&str]) -> Option<Running> {
    let namespace = ["--user", "--map-root-user", "sh", "-c"];
    let possible = Command::new("unshare").args(namespace).arg(FORBID).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: user namespaces cannot be forbidden here");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(namespace)
        .arg(format!("{FORBID} && exec \"$0\" \"$@\""))
        .arg(env!("CARGO_BIN_EXE_causeway"))
        .args(words);
    Some(scratch.start_command(command))
}

/// The finding of `causeway doctor`.
fn finding(outcome: &Outcome) -> Value {
    let diagnosis: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let findings = diagnosis["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["name"] == "sandbox");
    found.unwrap().clone()
}

/// Whether a line of a worker's status is there.
fn has(worker: Pid, line: &str) -> bool {
    let path = format!("/proc/{}/status", worker.as_raw_nonzero());
    let status = fs::read_to_string(path).unwrap();
    status.lines().any(|it| it == line)
}

fn namespace(process: i32, name: &str) -> String {
    let link = fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap();
    link.display().to_string()
}

#[test]
fn workers_are_confined_unless_the_user_turns_it_off() {
    for (how, filters) in [("on", 2), ("strict", 2), ("off", 0)] {
        let scratch = Scratch::new();
        let outcome = scratch.run(&["doctor", "--json"]);
        if finding(&outcome)["state"] != "yes" {
            eprintln!("skipped: this host lacks something for a sandbox");
            return;
        }
        let running = serve(&scratch, how);
        let [worker] = workers(&running)[..] else {
            panic!("one worker")
        };
        let is_confined = filters != 0;
        assert!(has(worker, &format!("Seccomp:\t{filters}")), "{how}");
        assert!(has(worker, "NoNewPrivs:\t1"), "{how}");
        if is_confined {
            assert!(has(worker, "CapPrm:\t0000000000000000"), "{how}");
            assert!(has(worker, "CapBnd:\t0000000000000000"), "{how}");
        }
        for name in ["user", "net", "ipc"] {
            let (inside, outside) = (worker.as_raw_nonzero().get(), running.id());
            let is_own = namespace(inside, name) != namespace(outside, name);
            assert_eq!(is_own, is_confined, "{how}: {name}");
        }
        end(running);
    }
}

/// Names of the threads of a process whose system calls are not filtered.
fn free_threads(process: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let folders = tasks.map(|task| task.unwrap().path());
    let statuses = folders.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    let free = statuses.filter(|status| !status.contains("\nSeccomp:\t2\n"));
    let names =
        free.filter_map(|status| Some(status.lines().next()?.split_once('\t')?.1.to_owned()));
    names.collect()
}

#[test]
fn all_threads_of_a_run_are_confined() {
    if !kvm("confined threads") {
        return;
    }
    for (gpu, how) in [
        ("software", "on"),
        ("software,isolation=process", "on"),
        ("software", "off"),
        ("software,isolation=process,weight=2", "on"),
        ("cuda,timeout=60000", "on"),
        ("cuda", "off"),
    ] {
        let machine = Machine::new();
        let words = ["run", "--guest", "lost", "--gpu", gpu, "--sandbox", how];
        let running = machine.start(&words);
        await_output(&running, "computing", 1);
        let free = free_threads(running.id());
        assert_eq!(free.is_empty(), how == "on", "{gpu}, {how}: {free:?}");
        running.signal(Signal::TERM);
        assert_eq!(running.finish().code, 143);
    }
}

#[test]
fn kernels_are_compiled_in_confined_processes() {
    if !kvm("compiled kernels") {
        return;
    }
    let _alone = alone();
    for isolation in ["none", "process"] {
        let scratch = Scratch::new();
        let gpu = format!("software,engine=compiled,isolation={isolation}");
        let words = ["--guest", "compute", "--gpu", &gpu];
        let (outcome, report) = report::run(&scratch, &words);
        outcome.assert_passed();
        report.assert_exit_free();
        let is_compiled = outcome.stdout.contains("AVX2, compiled");
        assert_eq!(is_compiled, is_x86_feature_detected!("avx2"), "{isolation}");
        let has_fallen_back = outcome.stderr.contains("kernels are interpreted");
        assert_ne!(
            has_fallen_back, is_compiled,
            "{isolation}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn strict_refuses_a_host_that_lacks_a_mechanism_and_names_it() {
    let scratch = Scratch::new();
    let words: Vec<_> = SERVE.into_iter().chain(["strict"]).collect();
    if let Some(running) = start_without_namespaces(&scratch, &words) {
        let outcome = running.finish();
        let parts = [
            "user namespace (",
            "user.max_user_namespaces",
            "--sandbox strict",
            "--sandbox on",
        ];
        outcome.assert_refused(GPU, &parts);
    }
}

#[test]
fn without_strict_a_worker_goes_on_with_what_the_host_has_and_says_so_once() {
    let scratch = Scratch::new();
    let words: Vec<_> = SERVE.into_iter().chain(["on", "-v"]).collect();
    if let Some(running) = start_without_namespaces(&scratch, &words) {
        await_output(&running, "causeway: serving", 1);
        let [worker] = workers(&running)[..] else {
            panic!("one worker")
        };
        assert!(has(worker, "Seccomp:\t2"));
        assert!(has(worker, "CapPrm:\t0000000000000000"));
        end(running);
    }
}

#[test]
fn what_is_missing_is_logged_once_for_all_workers() {
    let scratch = Scratch::new();
    // Without spare workers, the server tries one session before it listens.
    let words: Vec<_> = SERVE[..5]
        .iter()
        .chain(&["--sandbox", "on", "-v"])
        .copied()
        .collect();
    if let Some(running) = start_without_namespaces(&scratch, &words) {
        await_output(&running, "causeway: serving", 1);
        let said = end(running).stderr;
        let line = "worker processes are confined without user namespace";
        assert_eq!(said.matches(line).count(), 1, "{said}");
    }
}

#[test]
fn the_doctor_tries_what_workers_need() {
    let scratch = Scratch::new();
    if let Some(running) = start_without_namespaces(&scratch, &["doctor", "--json"]) {
        let finding = finding(&running.finish());
        assert_eq!(finding["state"], "partly", "{finding}");
        assert!(
            finding["found"]
                .as_str()
                .unwrap()
                .contains("no user namespace (")
        );
        assert!(
            finding["how"]
                .as_str()
                .unwrap()
                .contains("max_user_namespaces")
        );
    }
}

#[test]
fn strict_is_refused_where_nothing_would_be_confined() {
    for words in [
        &["run", "--sandbox", "strict"][..],
        &["serve", "--socket", "socket", "--sandbox", "strict"],
        &["cuda", "--sandbox", "strict", "--", "true"],
    ] {
        let outcome = Scratch::new().run(words);
        outcome.assert_refused(USAGE, &["strict for --sandbox", "isolation=process"]);
    }
    let outcome = Scratch::new().run(&["run", "--sandbox", "loose"]);
    outcome.assert_refused(USAGE, &["loose", "--sandbox", "strict"]);
}
