//! The ways in which a run ends other than by passing: each with its own exit code, and nothing
//! left behind.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bare_images::{CRASH, SPIN, elf, exit, print};
use crate::command::{Running, Scratch, kvm};
use crate::report;

const GUEST_FAILED: i32 = 1;
const CRASHED: i32 = 5;
const TIMEOUT: i32 = 6;
const HUNG_UP: i32 = 129;
const INTERRUPTED: i32 = 130;
const BROKEN_PIPE: i32 = 141;
const TERMINATED: i32 = 143;

#[test]
fn a_guest_that_reports_a_failure_fails_the_run() {
    if !kvm("failing guest") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.file("guest.elf", &elf(&exit(7)));
    let (outcome, report) = report::run(&scratch, &["--kernel", &image, "--memory", "64"]);
    assert_eq!(outcome.code, GUEST_FAILED, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    assert!(
        report.results()[0].0.contains('7'),
        "the guest's own code: {:?}",
        report.results()
    );
}

#[test]
fn a_panic_reaches_the_host_with_file_line_and_message() {
    if !kvm("panicking guest") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "panic"]);
    assert_eq!(outcome.code, GUEST_FAILED, "{outcome:?}");
    let result = report.results()[0].0;
    assert!(result.contains("panic.rs:"), "{result}");
    assert!(
        result.contains("this guest panics on CPU 0 of 1"),
        "{result}"
    );
}

#[test]
fn a_triple_fault_is_told_with_where_it_happened() {
    if !kvm("crashing guest") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.file("guest.elf", &elf(&CRASH));
    let (outcome, report) = report::run(&scratch, &["--kernel", &image, "--memory", "64"]);
    assert_eq!(outcome.code, CRASHED, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    let result = report.results()[0].0;
    assert!(result.contains("triple fault"), "{result}");
    assert!(
        result.contains("0x100078"),
        "the instruction pointer: {result}"
    );
}

#[test]
fn a_guest_that_never_ends_is_ended_by_the_timeout() {
    if !kvm("endless guest") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.file("guest.elf", &elf(&SPIN));
    let (outcome, report) = report::run(
        &scratch,
        &["--kernel", &image, "--memory", "64", "--timeout", "1"],
    );
    assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(10)).contains(&outcome.duration),
        "{outcome:?}"
    );
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("--timeout"), "the way out: {outcome:?}");
}

#[test]
fn one_endless_guest_of_two_is_ended_with_the_other() {
    if !kvm("endless guests") {
        return;
    }
    let scratch = Scratch::new();
    let outcome = scratch.run(&[
        "run",
        "--guest",
        "spin",
        "--vms",
        "2",
        "--vcpus",
        "2",
        "--timeout",
        "1",
    ]);
    assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
}

/// Starts a guest that says a word and then never ends, and waits until it runs.
fn endless(scratch: &Scratch) -> Running {
    let mut code = print("ready\n");
    code.extend(SPIN);
    let image = scratch.file("guest.elf", &elf(&code));
    let running = scratch.start(&[
        "run",
        "--kernel",
        &image,
        "--memory",
        "64",
        "--json",
        "report.json",
    ]);
    wait_for(&running, "ready");
    running
}

/// Waits until the guest has printed a word.
fn wait_for(running: &Running, word: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !(running.stdout() + &running.stderr()).contains(word) {
        assert!(
            Instant::now() < deadline,
            "the guest never ran: {}",
            running.stderr()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn signals_end_the_run_with_their_own_codes_and_at_once() {
    if !kvm("signals") {
        return;
    }
    for (signal, code) in [
        (Signal::INT, INTERRUPTED),
        (Signal::TERM, TERMINATED),
        (Signal::HUP, HUNG_UP),
        (Signal::PIPE, BROKEN_PIPE),
    ] {
        if signal == Signal::HUP && ignores_hangups() {
            eprintln!("skipped: SIGHUP, which this test was started to ignore");
            continue;
        }
        let scratch = Scratch::new();
        let running = endless(&scratch);
        let sent = Instant::now();
        running.signal(signal);
        let outcome = running.finish();
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(sent.elapsed() < Duration::from_secs(5), "{outcome:?}");
        let report = report::read(&scratch, &outcome);
        assert_eq!(report.outcome(), "fail");
    }
}

/// Whether commands that this test starts ignore SIGHUP, as under nohup.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask & 1 << (Signal::HUP.as_raw() - 1) != 0
}

#[test]
fn a_hangup_that_the_command_was_started_to_ignore_ends_nothing() {
    if !kvm("nohup") {
        return;
    }
    let scratch = Scratch::new();
    let mut code = print("ready\n");
    code.extend(SPIN);
    let image = scratch.file("guest.elf", &elf(&code));
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "trap '' HUP; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_causeway"),
    ]);
    shell.args(["run", "--kernel", &image, "--memory", "64"]);
    let running = scratch.start_command(shell);
    wait_for(&running, "ready");
    running.signal(Signal::HUP);
    running.signal(Signal::TERM);
    let outcome = running.finish();
    // Of signals that have arrived, SIGHUP would be taken first.
    assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
}
