//! Log lines: what a normal run says of itself, to whom.

use crate::command::{Outcome, Scratch, kvm};

const REPORT: i32 = 7;
const USAGE: i32 = 2;

/// What a run of one VM says at level info, in this order.
const MILESTONES: [&str; 4] = [
    "starts: run --guest exits",
    "vm0: created, with 1 virtual CPU and 256 MiB, on ",
    "vm0/vcpu0: the guest begins to run",
    "vm0: ended: passed",
];

#[track_caller]
fn assert_told(log: &str, milestones: &[&str]) {
    let mut rest = log;
    for milestone in milestones {
        let found = rest.find(milestone);
        let found = found.unwrap_or_else(|| panic!("no `{milestone}` in {log}"));
        rest = &rest[found..];
    }
}

fn run(scratch: &Scratch, more: &[&str]) -> Outcome {
    let outcome = scratch.run(&[&["run", "--guest", "exits"], more].concat());
    outcome.assert_passed();
    outcome
}

#[test]
fn a_normal_run_says_nothing_unless_asked_and_then_when_what_happened() {
    if !kvm("info lines") {
        return;
    }
    let plain = run(&Scratch::new(), &[]);
    assert!(!plain.stderr.contains("info: "), "{plain:?}");
    let told = run(&Scratch::new(), &["-v"]);
    assert_told(&told.stderr, &MILESTONES);
    for line in told.stderr.lines().filter(|line| line.contains("info: ")) {
        let time = line.strip_prefix("causeway: ").unwrap();
        let (time, _) = time.split_once("Z: info: ").unwrap();
        assert_eq!(time.len(), "2026-11-22T09:10:11.000012".len(), "{line}");
    }
    assert!(!told.stderr.contains("debug: "), "{told:?}");
}

#[test]
fn a_file_gets_info_lines_beside_a_quiet_terminal_and_workers_write_to_it_too() {
    if !kvm("log file") {
        return;
    }
    let scratch = Scratch::new();
    let more = ["--gpu", "software,isolation=process"];
    let told = run(
        &scratch,
        &[&["-q", "--log-file", "run.log"], &more[..]].concat(),
    );
    assert!(!told.stderr.contains("info: "), "{told:?}");
    let log = std::fs::read_to_string(scratch.path("run.log")).unwrap();
    assert_told(&log, &MILESTONES);
    assert_told(&log, &["worker process ", " starts, for session 1"]);
    assert_told(&log, &["starts: worker --", "ended with code 0"]);
    for line in log.lines() {
        assert!(line.contains("Z causeway["), "{line}");
    }
    // Appended, with the failure of the next command.
    let words = ["--log-file", "run.log", "run", "--guest", "nobody"];
    scratch.run(&words).assert_refused(USAGE, &["nobody"]);
    let longer = std::fs::read_to_string(scratch.path("run.log")).unwrap();
    let added = longer.strip_prefix(&log).unwrap();
    assert!(
        added.contains("error: ") && added.contains("nobody"),
        "{added}"
    );
}

#[test]
fn the_environment_still_sets_the_level_and_options_come_first() {
    if !kvm("RUST_LOG") {
        return;
    }
    let with = |words: &[&str]| {
        let mut command = std::process::Command::new("env");
        command.args(["RUST_LOG=info", env!("CARGO_BIN_EXE_causeway")]);
        command.args(["run", "--guest", "exits"]).args(words);
        let outcome = Scratch::new().start_command(command).finish();
        outcome.assert_passed();
        outcome.stderr
    };
    let said = with(&[]);
    assert!(
        said.contains("causeway: info: vm0: ended: passed"),
        "{said}"
    );
    let said = with(&["-q"]);
    assert!(!said.contains("info: "), "{said}");
}

#[test]
fn a_log_file_that_cannot_be_written_is_refused_before_anything_runs() {
    for path in ["/nonexistent/run.log", "/proc/run.log"] {
        let outcome = Scratch::new().run(&["run", "--log-file", path]);
        outcome.assert_refused(REPORT, &["--log-file", path]);
    }
    let scratch = Scratch::new();
    std::os::unix::fs::symlink("target", scratch.path("link")).unwrap();
    let outcome = scratch.run(&["run", "--log-file", "link"]);
    outcome.assert_refused(REPORT, &["link", "symbolic link", "name the file itself"]);
    assert!(!scratch.path("target").exists(), "the link was followed");
    let outcome = Scratch::new().run(&["run", "-v", "-q"]);
    outcome.assert_refused(USAGE, &["-v", "-q"]);
}
