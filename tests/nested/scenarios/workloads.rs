//! The workloads as programs of Linux guests.

use causeway_nested::{Lease, Outcome};

use crate::machines::{KERNEL, assert_data_stays_inside, install, machine, run};
use crate::report::Report;

/// Runs a program in a Linux guest of its own in each VM, and wants it to pass.
#[track_caller]
pub fn passes(
    machine: &Lease,
    name: &str,
    words: &[&str],
    arguments: &[&str],
) -> (Outcome, Report) {
    let program = install(machine, name);
    let guest = ["--kernel", KERNEL, "--program", &program];
    let (outcome, report) = run(machine, &[&guest, words, &["--"], arguments].concat());
    outcome.assert_code(0);
    assert_eq!(report.outcome(), "pass", "{}", outcome.text());
    (outcome, report)
}

#[test]
fn every_kernel_comes_out_right_in_a_linux_guest() {
    let Some(machine) = machine("compute on Linux") else {
        return;
    };
    let (outcome, report) = passes(&machine, "compute", &["--vcpus", "2"], &["--threads", "2"]);
    let text = outcome.text();
    assert!(text.contains("kernels verified: 22"), "{text}");
    assert!(text.contains("recorded and replayed: verified"), "{text}");
    assert_data_stays_inside(&report);
}

#[test]
#[ignore = "a bare guest streams, and Linux guests compute without an exit: run it by name"]
fn the_data_path_of_a_linux_guest_has_no_exit() {
    let Some(machine) = machine("stream on Linux") else {
        return;
    };
    let (_, report) = passes(&machine, "stream", &[], &[]);
    assert_data_stays_inside(&report);
    let stores = report.phase("10^8 stores of 8 bytes");
    assert_eq!(stores.operations(), 100_663_296);
    // Falling asleep is a batch. How many waits come that far depends on who is faster.
    let sleeping = report.phase("launch and wait, sleeping");
    assert_ne!(sleeping.kvm("mmio_exits"), 0);
}

#[test]
fn two_linux_guests_share_memory_and_a_fault_of_one_is_nothing_to_the_other() {
    let Some(machine) = machine("sharing on Linux") else {
        return;
    };
    let (outcome, report) = passes(&machine, "sharing", &["--vms", "2", "--mailboxes"], &[]);
    assert_data_stays_inside(&report);
    let text = outcome.text();
    assert!(text.contains("recovered from a fault"), "{text}");
}

#[test]
fn two_processes_of_one_linux_guest_share_memory() {
    let Some(machine) = machine("sharing in one Linux guest") else {
        return;
    };
    let (outcome, _) = passes(&machine, "sharing", &[], &[]);
    let text = outcome.text();
    assert!(text.contains("importer: pattern verified"), "{text}");
    assert!(text.contains("exporter: 4 kernels verified"), "{text}");
}

#[test]
fn the_first_program_of_the_documentation_adds_its_vectors() {
    let Some(machine) = machine("vector_add on Linux") else {
        return;
    };
    let (outcome, _) = passes(&machine, "vector_add", &[], &[]);
    let text = outcome.text();
    assert!(text.contains("100000 sums are right"), "{text}");
}

#[test]
fn a_linux_guest_is_told_what_it_has() {
    let Some(machine) = machine("causeway-info") else {
        return;
    };
    let limit = ["--gpu", "software,memory=96"];
    let (outcome, _) = passes(&machine, "causeway-info", &limit, &[]);
    let text = outcome.text();
    for part in [
        "0 bytes used of 96 MiB",
        "as PCI function 0000:00:01.0",
        "mapped write-back",
        "/dev/uio0",
        "1 of 63",
        "causeway-info (this program)",
    ] {
        assert!(text.contains(part), "`{part}`: {text}");
    }
}

#[test]
fn what_a_killed_process_held_is_free_again_and_a_greedy_one_hurts_nobody() {
    let Some(machine) = machine("processes of one Linux guest") else {
        return;
    };
    let limit = ["--gpu", "software,memory=64"];
    let (outcome, _) = passes(&machine, "processes", &limit, &[]);
    let text = outcome.text();
    for part in [
        "after the child: the whole quota is free again",
        "after the orphan: the whole quota is free again",
        "the session's memory quota is exhausted",
        "meanwhile: round 3 verified",
        "afterwards: round 4 verified",
    ] {
        assert!(text.contains(part), "`{part}`: {text}");
    }
}
