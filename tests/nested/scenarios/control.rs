//! A Linux guest that is paused, resumed and stopped at the control socket of its run.

use std::thread::sleep;
use std::time::Duration;

use causeway_nested::{Command, Job, Lease};
use serde_json::Value;

use crate::image::elf;
use crate::leftovers::{after_a_first, assert_nothing_left};
use crate::machines::{CAUSEWAY, KERNEL, REPORT, machine, run_command};
use crate::programs::{exit, say};
use crate::report::Report;

/// Where the program and the socket lie in the machine.
const PROGRAM: &str = "/tmp/program";
const SOCKET: &str = "/tmp/control";
/// System call of x86-64 Linux.
const NANOSLEEP: u8 = 35;
const TERMINATED: i32 = 143;
const GUEST: [&str; 8] = [
    "--kernel",
    KERNEL,
    "--program",
    PROGRAM,
    "--vcpus",
    "2",
    "--control",
    SOCKET,
];

/// Machine code that sleeps this many times for a tenth of a second.
fn sleep_tenths(tenths: u32) -> Vec<u8> {
    // mov ebx, tenths
    let mut code = vec![0xbb];
    code.extend(tenths.to_le_bytes());
    // again: mov eax, NANOSLEEP; lea rdi, [rip + 10]; xor esi, esi; syscall; dec ebx; jnz again
    code.extend([0xb8, NANOSLEEP, 0, 0, 0, 0x48, 0x8d, 0x3d, 10, 0, 0, 0]);
    code.extend([0x31, 0xf6, 0x0f, 0x05, 0xff, 0xcb, 0x75, 0xec]);
    // jmp over seconds and nanoseconds
    code.extend([0xeb, 16]);
    code.extend(0_u64.to_le_bytes());
    code.extend(100_000_000_u64.to_le_bytes());
    code
}

/// Asks the run, and returns the first VM of the answer.
#[track_caller]
fn control(machine: &Lease, action: &str) -> Value {
    let words = ["control", SOCKET, action, "--json"];
    let outcome = machine.run(&Command::new(CAUSEWAY, &words));
    outcome.assert_code(0);
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
    answer["vms"][0].clone()
}

/// Puts a program into the machine that says "begun", sleeps, and says "over".
fn install(machine: &Lease, tenths: u32) {
    let code = [
        say("begun\n"),
        sleep_tenths(tenths),
        say("over\n"),
        // The end of the leader of a terminal's session discards what the terminal has not sent.
        sleep_tenths(5),
        exit(7),
    ];
    machine.write(PROGRAM, 0o755, &elf(&code.concat()));
}

/// Starts a guest with that program, and waits until it has begun.
fn start(machine: &Lease, command: &Command) -> Job {
    let job = machine.start(command);
    machine.wait_for_text(command, job, "begun");
    job
}

/// What the VMM counts in the guest's life, as it is now.
fn vmm_exits(machine: &Lease) -> Value {
    let words = ["stat", "--all", "--json", "--once"];
    let outcome = machine.run(&Command::new(CAUSEWAY, &words));
    let record: Value = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(record["state"], "paused");
    record["vm"]["vmm_exits"].clone()
}

#[test]
fn a_linux_guest_goes_on_after_a_pause() {
    let Some(machine) = machine("pause of a Linux guest") else {
        return;
    };
    install(&machine, 20);
    let command = run_command(&GUEST);
    let job = start(&machine, &command);
    assert_eq!(control(&machine, "pause")["state"], "paused");
    let before = vmm_exits(&machine);
    sleep(Duration::from_secs(3));
    assert_eq!(vmm_exits(&machine), before);
    assert_eq!(control(&machine, "resume")["state"], "running");
    let outcome = machine.finish(&command, job);
    outcome.assert_code(7);
    for trouble in ["lockup", "stall"] {
        assert!(!outcome.stderr.contains(trouble), "{}", outcome.text());
    }
    assert!(outcome.stderr.contains("over"), "{}", outcome.text());
    let report = machine.read(REPORT).unwrap();
    let report = Report::parse(&String::from_utf8_lossy(&report));
    let vm = &report.0["vms"][0];
    assert_eq!(vm["pauses"]["count"], 1);
    let exits = vm["vmm_exits"]["signal:pause"].as_u64();
    // One of the virtual CPUs may have been outside the guest.
    assert!(exits.is_some_and(|exits| exits <= 2), "{vm}");
}

#[test]
fn a_linux_guest_is_stopped_while_it_is_paused_and_leaves_nothing() {
    let Some(machine) = machine("stop of a paused Linux guest") else {
        return;
    };
    install(&machine, 10_000);
    let words = [&["run"][..], &GUEST].concat();
    let command = Command::new(CAUSEWAY, &words).limit(Duration::from_secs(250));
    let stop = || {
        let job = start(&machine, &command);
        assert_eq!(control(&machine, "pause")["state"], "paused");
        control(&machine, "stop");
        machine.finish(&command, job).assert_code(TERMINATED);
    };
    let before = after_a_first(&machine, stop);
    stop();
    assert_nothing_left(&machine, &before);
}
