//! Bare guests, with exact numbers of exits, at the privilege level of programs and at that of
//! kernels.

use causeway_nested::Lease;

use crate::machines::{SHUTDOWNS, machine, run, run_command};

/// Quotas that are exhausted soon.
const SMALL_GPU: &str = "software,memory=128,allocations=64,queues=4";
const LEVELS: [&str; 2] = ["3", "0"];

#[track_caller]
fn count_exits(machine: &Lease, level: &str) {
    let (outcome, report) = run(machine, &["--guest", "exits", "--cpl", level]);
    outcome.assert_code(0);
    assert_eq!(report.0["host"]["kvm"], "nested", "{}", report.0["host"]);
    report.phase("nothing").assert_exits(0, 0);
    report.phase("100 port loads").assert_exits(0, 100);
    report.phase("100 register loads").assert_exits(100, 0);
    report.phase("1000000 stores to RAM").assert_exits(0, 0);
    // Unlike a KVM by software, this one counts port accesses as what they are.
    assert_eq!(report.phase("100 port loads").kvm("io_exits"), 100);
}

#[test]
fn exits_are_counted_exactly_by_kvm_and_by_the_vmm_at_either_level() {
    let Some(machine) = machine("exact counts") else {
        return;
    };
    for level in LEVELS {
        count_exits(&machine, level);
    }
}

#[test]
fn compute_verifies_every_kernel_and_its_data_path_never_exits_at_either_level() {
    let Some(machine) = machine("compute") else {
        return;
    };
    for level in LEVELS {
        let (outcome, report) = run(&machine, &["--guest", "compute", "--cpl", level]);
        outcome.assert_code(0);
        report.assert_exit_free();
    }
}

#[test]
fn one_guest_exports_an_allocation_and_the_other_imports_it() {
    let Some(machine) = machine("sharing") else {
        return;
    };
    let (outcome, report) = run(&machine, &["--guest", "sharing", "--vms", "2"]);
    outcome.assert_code(0);
    report.assert_exit_free();
}

#[test]
fn stream_loads_stores_and_submits_without_an_exit() {
    let Some(machine) = machine("stream") else {
        return;
    };
    let (outcome, report) = run(&machine, &["--guest", "stream"]);
    outcome.assert_code(0);
    report.assert_exit_free();
}

#[test]
fn a_guest_that_does_everything_wrong_harms_nobody() {
    let Some(machine) = machine("hostile") else {
        return;
    };
    let (outcome, report) = run(
        &machine,
        &["--guest", "hostile", "--vms", "2", "--gpu", SMALL_GPU],
    );
    outcome.assert_code(0);
    assert_eq!(report.outcome(), "pass");
}

#[test]
fn the_registers_of_a_guest_that_shuts_down_are_known() {
    let Some(machine) = machine("registers of a guest that shuts down") else {
        return;
    };
    let outcome = machine.run(&run_command(&["--guest", "triple"]));
    outcome.assert_code(5);
    let trace = machine.read(SHUTDOWNS).unwrap_or_default();
    let trace = String::from_utf8_lossy(&trace);
    let shown = trace
        .lines()
        .any(|line| line.contains("shutdown: ") && line.contains(" rip=0x"));
    assert!(shown, "{trace}");
}
