//! The ways in which a run ends other than by passing: each with its own exit code, and nothing
//! left behind.

use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::bare_images::{CRASH, SPIN, elf, exit, kernel, print};
use crate::command::{Running, Scratch, alone, kvm};
use crate::report;
use crate::standin::Machine;

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
    // The endless loop is the image's first and only instruction.
    let place = "vm0: virtual CPU 0 ran at rip 0x100078 (CPL 3), after 0 exits";
    assert!(said.contains(place), "the place: {outcome:?}");
    let seen = &report.0["vms"][0]["at_timeout"]["vcpus"][0];
    assert_eq!((&seen["rip"], &seen["cpl"]), (&json!(0x10_0078), &json!(3)));
    assert_eq!(seen["doing"], "running");
}

/// Returns the addresses of an ELF image's code: its first segment that can be executed.
fn code_of(image: &[u8]) -> Range<u64> {
    const EXECUTABLE: u32 = 1;
    let number = |at: usize| u64::from_le_bytes(*image[at..].first_chunk().unwrap());
    let headers = (number(32) as usize..).step_by(56);
    let mut flags = headers.map(|at| {
        (
            at,
            u32::from_le_bytes(*image[at + 4..].first_chunk().unwrap()),
        )
    });
    let (at, _) = flags.find(|(_, flags)| flags & EXECUTABLE != 0).unwrap();
    let begin = number(at + 16);
    begin..begin + number(at + 40)
}

/// What the host needs to know of a guest that hangs: where, and on which virtual CPUs.
#[test]
fn the_time_limit_tells_what_each_virtual_cpu_did() {
    if !kvm("an endless guest's virtual CPUs") {
        return;
    }
    let scratch = Scratch::new();
    let words = ["--guest", "spin", "--vcpus", "2", "--timeout", "1"];
    let (outcome, report) = report::run(&scratch, &words);
    assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
    let code = code_of(causeway_embedded::image("spin").unwrap());
    let seen = &report.0["vms"][0]["at_timeout"]["vcpus"];
    let rip = seen[0]["rip"].as_u64().unwrap();
    assert!(code.contains(&rip), "{rip:#x} in {code:#x?}");
    assert!(
        outcome.stderr.contains(&format!("ran at rip {rip:#x}")),
        "{outcome:?}"
    );
    assert_eq!(seen[1]["vcpu"], 1, "{seen}");
    assert!(outcome.stderr.contains("virtual CPU 1"), "{outcome:?}");
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

/// The guest waits for the kernel for ever.
#[test]
fn the_time_limit_tells_what_the_gpu_work_has_come_to() {
    if !kvm("an endless kernel") {
        return;
    }
    for gpu in ["cuda,isolation=none", "cuda,isolation=process"] {
        let machine = Machine::new().with("HANG_KERNEL", 10_000);
        let words = ["--guest", "compute", "--gpu", gpu, "--timeout", "6"];
        let (outcome, report) = machine.guests(&words);
        assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
        let seen = &report.0["vms"][0]["at_timeout"]["gpu"];
        let used = seen["command_buffers"].as_u64();
        assert!(used.is_some_and(|count| count != 0), "{gpu}: {seen}");
        let told = format!("vm0: command buffers: {};", seen["command_buffers"]);
        assert!(outcome.stderr.contains(&told), "{told}: {outcome:?}");
    }
}

/// A thousand virtual CPUs that spin keep the command from the host's few CPUs, while it starts
/// them and while it ends them.
#[test]
fn the_time_limit_holds_for_many_more_virtual_cpus_than_the_host_has() {
    if !kvm("many virtual CPUs") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let many = ["--vms", "16", "--vcpus", "64", "--memory", "32"];
    let words = [&["run", "--guest", "spin", "--timeout", "1"][..], &many].concat();
    let outcome = scratch.run(&words);
    assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let warning = format!("warning: 1024 virtual CPUs share {cpus} CPUs");
    assert_eq!(
        outcome.stderr.contains(&warning),
        cpus <= 256,
        "{outcome:?}"
    );
}

#[test]
fn a_linux_kernel_on_a_kvm_that_interprets_it_is_warned_of() {
    if !kvm("a kernel that is interpreted") {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("kernel", &kernel(1 << 20));
    let words = [
        "run",
        "--kernel",
        "kernel",
        "--memory",
        "64",
        "--timeout",
        "1",
    ];
    let outcome = scratch.run(&words);
    assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
    let exists = |path: &str| std::path::Path::new(path).exists();
    let by_software = exists("/sys/module/kvm_pvm") && !exists("/sys/module/kvm_amd");
    let warned = outcome
        .stderr
        .contains("warning: KVM of this host works by software");
    assert_eq!(warned, by_software, "{outcome:?}");
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
