//! Device memory that guests see by their own loads and stores: with Vulkan, without it, and with
//! another device's.

use crate::command::{Outcome, alone, kvm};
use crate::report::Report;
use crate::standin::Machine;

const LINE: &str = "round trip to a running kernel, device memory";

/// Runs the guest that talks to a kernel through such memory, with the same through host memory.
fn bench(machine: &Machine) -> (Outcome, serde_json::Value) {
    let words = [
        "bench",
        "gpu",
        "--gpu",
        "cuda,memory=256",
        "--json",
        "b.json",
    ];
    let outcome = machine.run(&[&words[..], &["--repetitions", "1", "--only", LINE]].concat());
    outcome.assert_passed();
    (outcome, machine.json("b.json"))
}

/// Asserts that such memory is refused, with the reason, and that the guest goes on.
fn assert_refused(machine: &Machine, why: &[&str]) {
    let (outcome, report) = bench(machine);
    assert!(report["lines"].as_array().unwrap().is_empty(), "{report}");
    let said = format!("{LINE}: cannot ");
    assert!(
        outcome.stderr.contains(&said),
        "the guest says so: {outcome:?}"
    );
    for part in why {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    let (outcome, report) = computes(machine);
    outcome.assert_passed();
    report.assert_exit_free();
}

/// Host memory is not concerned.
fn computes(machine: &Machine) -> (Outcome, Report) {
    machine.guests(&["--guest", "compute", "--gpu", "cuda,memory=256"])
}

#[test]
fn a_guest_talks_to_a_running_kernel_through_device_memory_without_an_exit() {
    if !kvm("CPU-visible device memory") {
        return;
    }
    let Some(machine) = Machine::new().with_vulkan("CPU-visible device memory") else {
        return;
    };
    let _alone = alone();
    let (outcome, report) = bench(&machine);
    let lines = report["lines"].as_array().unwrap();
    let [line] = &lines[..] else {
        panic!("one line: {outcome:?}");
    };
    assert_eq!(line["line"], LINE);
    assert_eq!(line["exits"]["user_space_per_operation"], 0.0, "{line}");
    assert!(
        line["exits"]["operations"].as_u64().unwrap() >= 1000,
        "{line}"
    );
}

#[test]
fn without_a_vulkan_driver_it_is_refused_and_host_memory_works() {
    if !kvm("no Vulkan driver") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new().variable("VK_DRIVER_FILES", "/nonexistent.json");
    assert_refused(&machine, &["Vulkan"]);
}

#[test]
fn with_a_vulkan_that_only_knows_another_device_it_is_refused_and_host_memory_works() {
    if !kvm("another device's Vulkan") {
        return;
    }
    if Machine::new()
        .with_vulkan("another device's Vulkan")
        .is_none()
    {
        return;
    }
    let _alone = alone();
    // The stand-in's usual UUID is nobody's.
    assert_refused(&Machine::new(), &["Vulkan", "UUID"]);
}
