//! How the time of a device is shared out between VMs that all keep it busy.

use crate::command::{Scratch, alone, kvm};
use crate::parsed_report::Report;
use crate::report;
use crate::standin::Machine;

/// Runs the guest `greedy` for two seconds with what `gpu` says. Its kernels are so large that the
/// device is what limits the guests.
fn run(gpu: &str, vms: &str) -> Report {
    run_with(gpu, vms, "seconds=2,steps=300")
}

fn run_with(gpu: &str, vms: &str, arguments: &str) -> Report {
    let words = ["--guest", "greedy", "--vms", vms, "--gpu", gpu];
    let arguments = ["--arguments", arguments];
    let (outcome, report) = report::run(&Scratch::new(), &[&words[..], &arguments].concat());
    outcome.assert_passed();
    report
}

fn statistic(report: &Report, vm: usize, name: &str) -> f64 {
    let value = &report.0["vms"][vm]["session"][name];
    let value = value.as_f64();
    value.unwrap_or_else(|| panic!("no {name} of VM {vm}: {}", report.0))
}

#[test]
fn vms_that_are_always_busy_have_time_by_their_weights() {
    if !kvm("weights") {
        return;
    }
    let _alone = alone();
    let report = run("software,weight=1:8", "2");
    let [light, heavy] = [0, 1].map(|vm| statistic(&report, vm, "device_ns"));
    // Eight times as much, if nobody else uses the host.
    assert!(heavy > 2.0 * light, "{light} ns and {heavy} ns");
    assert!(statistic(&report, 0, "turn_waits") > 0.0);
}

#[test]
fn vms_with_workers_have_time_by_their_weights_and_keep_their_caps() {
    if !kvm("weights across processes") {
        return;
    }
    let _alone = alone();
    let report = run("software,weight=1:8,isolation=process", "2");
    let [light, heavy] = [0, 1].map(|vm| statistic(&report, vm, "device_ns"));
    assert!(heavy > 2.0 * light, "{light} ns and {heavy} ns");
    assert!(statistic(&report, 0, "turn_waits") > 0.0);

    let capped = run("software,share=20,isolation=process", "1");
    let used = statistic(&capped, 0, "device_ns");
    assert!(used > 0.0 && used < 0.3 * 2e9, "{used} ns of 2 s");
    assert!(statistic(&capped, 0, "turn_waits") > 0.0);

    let alone = run("software,weight=3,isolation=process", "1");
    assert_eq!(statistic(&alone, 0, "turn_waits"), 0.0);
}

#[test]
fn vms_on_a_gpu_have_time_by_their_weights() {
    if !kvm("weights on a GPU") {
        return;
    }
    let _alone = alone();
    let words = [
        "--guest",
        "greedy",
        "--vms",
        "2",
        "--gpu",
        "cuda,weight=1:8",
    ];
    let arguments = ["--arguments", "seconds=2,steps=300"];
    let (outcome, report) = Machine::new().guests(&[&words[..], &arguments].concat());
    outcome.assert_passed();
    let [light, heavy] = [0, 1].map(|vm| statistic(&report, vm, "device_ns"));
    assert!(heavy > 2.0 * light, "{light} ns and {heavy} ns");
    assert!(statistic(&report, 0, "turn_waits") > 0.0);
}

#[test]
fn a_vm_that_is_alone_keeps_its_cap_and_waits_for_nobody_without_one() {
    if !kvm("a cap") {
        return;
    }
    let _alone = alone();
    let capped = run("software,share=20", "1");
    // A host that does other things makes it less, not more.
    let used = statistic(&capped, 0, "device_ns");
    assert!(used > 0.0 && used < 0.3 * 2e9, "{used} ns of 2 s");
    assert!(statistic(&capped, 0, "turn_waits") > 0.0);
    assert_eq!(statistic(&run("software", "1"), 0, "turn_waits"), 0.0);
}

#[test]
fn a_vm_whose_kernels_have_one_block_leaves_the_rest_of_the_device_to_others() {
    if !kvm("spare units") {
        return;
    }
    let _alone = alone();
    let arguments = "seconds=2,steps=300,narrow=1";
    // Other programs of this machine may take the second processor for a while.
    let tries: Vec<[f64; 2]> = (0..3)
        .map(|_| {
            let report = run_with("software,cores=2,weight=8:1", "2", arguments);
            [0, 1].map(|vm| statistic(&report, vm, "device_ns"))
        })
        .collect();
    // If it had to wait for the other one, it would have an eighth.
    let is_left_room = |&[narrow, wide]: &[f64; 2]| wide > 0.25 * narrow;
    assert!(tries.iter().any(is_left_room), "{tries:?} ns");
}

#[test]
fn a_kernel_beyond_its_timeout_costs_its_own_vm_the_device_and_no_other() {
    if !kvm("a timeout") {
        return;
    }
    let arguments = "seconds=3,steps=300,endless=1";
    for isolation in ["none", "process"] {
        let gpu = format!("software,timeout=1000,isolation={isolation}");
        assert_only_the_first_is_lost(&run_with(&gpu, "2", arguments));
    }
    for gpu in ["cuda,timeout=1000", "cuda,timeout=1000,weight=1"] {
        let words = ["--guest", "greedy", "--vms", "2", "--gpu", gpu];
        let words = [&words[..], &["--arguments", arguments]].concat();
        let (outcome, report) = Machine::new().guests(&words);
        outcome.assert_passed();
        assert_only_the_first_is_lost(&report);
    }
}

#[track_caller]
fn assert_only_the_first_is_lost(report: &Report) {
    let faults = [0, 1].map(|vm| statistic(report, vm, "faults"));
    assert_eq!(faults, [1.0, 0.0], "{}", report.0);
    assert!(statistic(report, 1, "launches") > 100.0, "{}", report.0);
}
