//! Every guest, unchanged.

use causeway_kernels::CASES;

use crate::command::{Outcome, alone, kvm};
use crate::report::Report;
use crate::standin::{Machine, NAME};

/// What guests take all of: on a real GPU that is as fast with more.
const GPU: [&str; 2] = ["--gpu", "cuda,memory=512MiB"];

fn passes(words: &[&str]) -> Report {
    passing(words).1
}

fn passing(words: &[&str]) -> (Outcome, Report) {
    let words: Vec<&str> = words.iter().copied().chain(GPU).collect();
    let (outcome, report) = Machine::new().guests(&words);
    outcome.assert_passed();
    assert_eq!(report.outcome(), "pass", "{words:?}");
    let name = report.0["backend"]["name"].as_str().unwrap();
    assert!(name.starts_with("cuda, ") && name.contains(NAME), "{name}");
    assert_eq!(report.0["backend"]["compute_units"], 132);
    for vm in report.0["vms"].as_array().unwrap() {
        assert_eq!(vm["isolation"], "process");
        assert!(vm["worker_rss_bytes"].as_u64().unwrap() > 0, "{vm}");
    }
    (outcome, report)
}

#[test]
fn compute_verifies_every_kernel_and_its_data_path_never_exits() {
    if !kvm("compute on CUDA") {
        return;
    }
    let _alone = alone();
    let report = passes(&["--guest", "compute"]);
    report.assert_exit_free();
    for case in CASES {
        let mut data = report.phases().filter(|phase| phase.is_data());
        assert!(
            data.any(|phase| phase.name() == case.name),
            "no phase of the data path is called {}",
            case.name
        );
    }
    assert_eq!(restarts(&report), [0]);
}

#[test]
fn compute_verifies_every_kernel_in_two_vms_with_two_virtual_cpus_each() {
    if !kvm("two VMs on CUDA") {
        return;
    }
    let _alone = alone();
    let report = passes(&["--guest", "compute", "--vms", "2", "--vcpus", "2"]);
    report.assert_exit_free();
    assert_eq!(report.results().len(), 2);
}

#[test]
fn stream_loads_stores_and_submits_without_an_exit() {
    if !kvm("stream on CUDA") {
        return;
    }
    let _alone = alone();
    let report = passes(&["--guest", "stream", "--timeout", "200"]);
    report.assert_exit_free();
    assert!(!report.0["ratios"].as_array().unwrap().is_empty());
}

#[test]
fn exits_are_counted_exactly() {
    if !kvm("exact counts on CUDA") {
        return;
    }
    let report = passes(&["--guest", "exits"]);
    report.phase("nothing").assert_exits(0, 0);
    report.phase("100 port loads").assert_exits(0, 100);
    report.phase("100 register loads").assert_exits(100, 0);
    report.phase("1000000 stores to RAM").assert_exits(0, 0);
}

#[test]
fn two_guests_share_an_allocation_and_one_faults_without_the_other_noticing() {
    if !kvm("sharing on CUDA") {
        return;
    }
    let _alone = alone();
    let report = passes(&["--guest", "sharing", "--vms", "2"]);
    assert!(report.results().iter().all(|(_, passed)| *passed));
    let restarts = restarts(&report);
    assert_eq!(
        restarts[0], 0,
        "the guest that did not fault kept its worker"
    );
}

#[test]
fn memory_that_another_guest_had_holds_nothing_of_it() {
    if !kvm("residue on CUDA") {
        return;
    }
    let _alone = alone();
    let arguments = ["--arguments", "rounds=20,mib=16"];
    passes(&[
        "--guest",
        "residue",
        "--vms",
        "2",
        arguments[0],
        arguments[1],
    ]);
    passes(&["--guest", "residue", arguments[0], arguments[1]]);
}

#[test]
fn a_hostile_guest_leaves_the_other_verified_and_its_throughput_is_told() {
    if !kvm("hostile on CUDA") {
        return;
    }
    let _alone = alone();
    let (outcome, report) = passing(&["--guest", "hostile", "--vms", "2", "--timeout", "200"]);
    assert!(report.results().iter().all(|(_, passed)| *passed));
    assert_eq!(restarts(&report)[1], 0, "the witness kept its worker");
    let figures = report.0["ratios"].as_array().unwrap();
    let throughput = figures.iter().find(|figure| figure["unit"] == "kernels/s");
    let throughput = throughput.unwrap_or_else(|| panic!("no throughput: {}", report.0));
    assert_eq!(throughput["vm"], 1);
    assert!(throughput["value"].as_f64().unwrap() > 0.0);
    let foreign = "the cubin is for sm_35, this GPU is sm_90: give PTX or a cubin for sm_90";
    assert!(outcome.stderr.contains(foreign), "{outcome:?}");
}

/// How often the worker of each VM was replaced.
fn restarts(report: &Report) -> Vec<u64> {
    let vms = report.0["vms"].as_array().unwrap().iter();
    vms.map(|vm| vm["worker_restarts"].as_u64().unwrap())
        .collect()
}
