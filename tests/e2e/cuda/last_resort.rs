//! A driver in the command's own process that holds it up for ever: a signal ends the command all
//! the same, and nothing is left behind.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::command::{Outcome, Running, Scratch, kvm};
use crate::standin::Machine;

const INTERRUPTED: i32 = 130;
const TERMINATED: i32 = 143;
/// Longer than any test waits.
const FOREVER_S: u32 = 10_000;
/// Far more than the two seconds that are promised, and less than the time of any test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command whose driver hangs where `setting` says, and ends it by `signals`.
fn ended(setting: &str, words: &[&str], signals: &[Signal]) -> Outcome {
    let machine = Machine::new().with(setting, FOREVER_S);
    let running = machine.start(words);
    machine.await_hang(&running);
    end(running, signals)
}

fn end(running: Running, signals: &[Signal]) -> Outcome {
    let sent = Instant::now();
    for signal in signals {
        running.signal(*signal);
        std::thread::sleep(Duration::from_millis(250));
    }
    let outcome = running.finish();
    assert!(sent.elapsed() < PATIENCE, "{outcome:?}");
    outcome
}

#[track_caller]
fn assert_told(outcome: &Outcome, parts: &[&str]) {
    let told = outcome.stderr.lines();
    let told: Vec<&str> = told
        .filter(|line| line.starts_with("causeway: ") && line.contains("it ends now"))
        .collect();
    assert_eq!(told.len(), 1, "one message: {outcome:?}");
    for part in parts {
        assert!(told[0].contains(part), "`{part}` is not named: {outcome:?}");
    }
}

#[test]
fn a_signal_ends_a_run_whose_driver_does_not_start() {
    if !kvm("a driver in the VMM that does not start") {
        return;
    }
    for (words, what) in [
        (
            &["run", "--guest", "exits", "--gpu", "cuda,isolation=none"][..],
            "the driver of --gpu cuda,isolation=none to start",
        ),
        (
            &["bench", "gpu", "--gpu", "cuda,isolation=none"],
            "the GPU's driver to start",
        ),
    ] {
        let outcome = ended("HANG", words, &[Signal::TERM]);
        assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
        assert_told(&outcome, &["2 s after signal 15", what]);
    }
}

#[test]
fn a_signal_ends_a_server_and_a_program_whose_driver_does_not_start() {
    let gpu = ["--gpu", "cuda,isolation=none", "--processes", "1"];
    for words in [&["serve", "--socket", "socket"][..], &["cuda"]] {
        let program = (words[0] == "cuda").then_some(["--", "true"]);
        let words = [words, &gpu, program.as_ref().map_or(&[], |words| words)].concat();
        let outcome = ended("HANG", &words, &[Signal::TERM]);
        assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
        assert_told(&outcome, &["2 s after signal 15", "driver"]);
    }
}

#[test]
fn a_signal_ends_a_run_whose_driver_never_loads_a_module() {
    if !kvm("a load in the VMM that never ends") {
        return;
    }
    let gpu = ["--gpu", "cuda,isolation=none"];
    let words = ["run", "--guest", "compute", "--metrics-socket", "metrics"];
    let words = [&words[..], &gpu, &["--json", "report.json"]].concat();
    let outcome = ended("HANG_LOAD", &words, &[Signal::TERM]);
    assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
    assert_told(&outcome, &["2 s after signal 15", "vm0"]);
}

/// The run can leave the kernel behind, so it ends in order.
#[test]
fn a_signal_ends_a_run_with_a_kernel_that_never_ends() {
    if !kvm("a kernel in the VMM that never ends") {
        return;
    }
    let words = ["run", "--guest", "compute", "--gpu", "cuda,isolation=none"];
    let outcome = ended("HANG_KERNEL", &words, &[Signal::INT]);
    assert_eq!(outcome.code, INTERRUPTED, "{outcome:?}");
    assert!(outcome.stdout.contains("run: FAIL"), "{outcome:?}");
}

/// The first signal waits for the driver; the second does not.
#[test]
fn a_second_signal_ends_a_run_at_once() {
    if !kvm("two signals") {
        return;
    }
    let words = ["run", "--guest", "exits", "--gpu", "cuda,isolation=none"];
    let outcome = ended("HANG", &words, &[Signal::TERM, Signal::INT]);
    assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
    assert_told(&outcome, &["a second signal", "signal 15"]);
}

/// The server ends in order, before its time is over.
#[test]
fn a_program_that_a_signal_ends_takes_its_server_with_it() {
    let machine = Machine::new();
    let gpu = ["--gpu", "cuda,isolation=none", "--processes", "1"];
    let program = ["--", "sleep", "1000"];
    let running = machine.start(&[&["cuda"][..], &gpu, &program].concat());
    await_child(&running, "sleep");
    let outcome = end(running, &[Signal::TERM]);
    assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
    assert!(!outcome.stderr.contains("it ends now"), "{outcome:?}");
}

/// A program that goes on after a signal is not ended by its command.
#[test]
fn a_program_that_handles_signals_has_the_time_it_wants() {
    let scratch = Scratch::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    let script = "trap '' TERM; echo ready; sleep 4; exit 5";
    command.args(["cuda", "--", "sh", "-c", script]);
    let running = scratch.start_command(command);
    let deadline = Instant::now() + PATIENCE;
    while !running.stdout().contains("ready") {
        assert!(Instant::now() < deadline, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    let outcome = end(running, &[Signal::TERM, Signal::TERM]);
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(!outcome.stderr.contains("it ends now"), "{outcome:?}");
}

/// Waits until the command has started a program.
fn await_child(running: &Running, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    let runs = || {
        crate::workers::processes(running).into_iter().any(|pid| {
            let path = format!("/proc/{}/comm", pid.as_raw_nonzero());
            std::fs::read_to_string(path).is_ok_and(|found| found.trim() == name)
        })
    };
    while !runs() {
        assert!(Instant::now() < deadline, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
}
