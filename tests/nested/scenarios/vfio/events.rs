//! What others do to a device that a guest has: unbind it, reset it.

use causeway_nested::devices::{EDU, HostDevice, MEMORY};
use causeway_nested::{Command, Job, Lease, Outcome};

use super::edu::device;
use super::hand_out;
use crate::machines::{REPORT, machine_with_devices, run_command, shell};
use crate::report::Report;

/// SIGINT.
const INTERRUPT: i32 = 2;
/// Exit codes: a device is not to be had any more; SIGINT.
const DEVICE: i32 = 9;
const INTERRUPTED: i32 = 130;

/// Starts a run, and waits until its guest uses the device.
#[track_caller]
fn start(machine: &Lease, words: &[&str]) -> (Command, Job) {
    let command = run_command(words);
    let job = machine.start(&command);
    machine.wait_for_text(&command, job, "in use");
    (command, job)
}

/// Unbinds a device from its driver, which takes as long as it is held; gives how the run ended.
#[track_caller]
fn unbind_under(machine: &Lease, held: &HostDevice, (command, job): (Command, Job)) -> Outcome {
    let file = held.file("driver/unbind");
    let unbind = shell(&format!("echo {} > {file}", held.address));
    let unbinding = machine.start(&unbind);
    let outcome = machine.finish(&command, job);
    machine.finish(&unbind, unbinding).assert_code(0);
    assert_eq!(held.driver(machine), None, "it is still bound");
    outcome
}

fn report(machine: &Lease) -> Report {
    let text = machine.read(REPORT).expect("the run has ended");
    Report::parse(&String::from_utf8_lossy(&text))
}

#[test]
fn a_guest_whose_device_is_unbound_ends_in_order_and_lets_go_of_it() {
    let Some(machine) = machine_with_devices("unbinding a device that is passed through") else {
        return;
    };
    hand_out(&machine, &[EDU]);
    let words = [
        "--guest",
        "edu",
        "--arguments",
        "hold",
        "--vfio",
        EDU.address,
    ];
    let running = start(&machine, &words);
    let outcome = unbind_under(&machine, &EDU, running);
    outcome.assert_code(DEVICE);
    let wanted = format!("device {} back", EDU.address);
    assert!(outcome.stderr.contains(&wanted), "{}", outcome.text());
    assert_eq!(report(&machine).outcome(), "fail");
    // It can be had again.
    hand_out(&machine, &[EDU]);
}

#[test]
fn a_reset_of_a_device_under_its_guest_is_told() {
    let Some(machine) = machine_with_devices("resetting a device that is passed through") else {
        return;
    };
    hand_out(&machine, &[EDU]);
    let words = [
        "--guest",
        "edu",
        "--arguments",
        "hold",
        "--vfio",
        EDU.address,
    ];
    let (command, job) = start(&machine, &words);
    machine.write(&EDU.file("reset"), 0o200, b"1");
    machine.wait_for_text(&command, job, "it was reset through sysfs");
    machine.signal(job, INTERRUPT, false);
    let outcome = machine.finish(&command, job);
    outcome.assert_code(INTERRUPTED);
    assert!(outcome.stderr.contains(EDU.address), "{}", outcome.text());
    let report = report(&machine);
    let events = device(&report, 0, 0)["events"].to_string();
    assert!(events.contains("reset"), "{events}");
}

/// Starts a guest that uses memory of a device.
#[track_caller]
fn start_partitions(machine: &Lease) -> (Command, Job) {
    let gpu = format!("vfio:{}", MEMORY.address);
    let words = ["--guest", "partition", "--arguments", "hold", "--gpu", &gpu];
    start(machine, &words)
}

/// The guest has noticed, and gone on to its end; and there is a word of it for people.
#[track_caller]
fn assert_told_of_loss(outcome: &Outcome) {
    outcome.assert_code(0);
    let text = outcome.text();
    assert!(text.contains("the device is lost"), "{text}");
    assert!(outcome.stderr.contains(MEMORY.address), "{text}");
}

#[test]
fn guests_lose_partitions_when_its_device_is_unbound_or_reset() {
    let Some(machine) =
        machine_with_devices("unbinding and resetting a device whose memory is partitioned")
    else {
        return;
    };
    hand_out(&machine, &[MEMORY]);
    let running = start_partitions(&machine);
    assert_told_of_loss(&unbind_under(&machine, &MEMORY, running));
    hand_out(&machine, &[MEMORY]);
    let (command, job) = start_partitions(&machine);
    machine.write(&MEMORY.file("reset"), 0o200, b"1");
    assert_told_of_loss(&machine.finish(&command, job));
}
