//! `--numa`: VMs on a NUMA node. The nested tests have a machine with several.

use std::path::Path;

use crate::command::{Scratch, alone, kvm};
use crate::report;
use crate::standin::Machine;

const USAGE: i32 = 2;

/// Whether this host has node 0; if not, what is skipped and why is printed.
fn has_node(test: &str) -> bool {
    let found = Path::new("/sys/devices/system/node/node0/meminfo").exists();
    if !found {
        eprintln!("skipped: this kernel tells of no NUMA nodes ({test})");
    }
    found
}

#[test]
fn vms_on_a_node_pass_and_the_report_says_where_they_were() {
    let test = "VMs on a NUMA node";
    if !kvm(test) || !has_node(test) {
        return;
    }
    let _alone = alone();
    for gpu in ["software", "software,isolation=process"] {
        let scratch = Scratch::new();
        let words = ["--vms", "2", "--memory", "64", "--numa", "0", "--gpu", gpu];
        let (outcome, report) = report::run(&scratch, &words);
        outcome.assert_passed();
        report.assert_exit_free();
        let line = "causeway: --numa 0 places vm0, vm1 on NUMA node 0 (";
        assert!(outcome.stderr.contains(line), "{outcome:?}");
        for vm in report.0["vms"].as_array().unwrap() {
            assert_eq!(vm["numa_node"], 0, "{gpu}: {vm}");
        }
    }
}

#[test]
fn without_the_option_no_node_is_named() {
    if !kvm("no NUMA node") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "exits"]);
    outcome.assert_passed();
    assert!(!outcome.stderr.contains("NUMA"), "{outcome:?}");
    assert!(report.0["vms"][0].get("numa_node").is_none());
}

#[test]
fn nodes_that_cannot_be_used_are_refused_before_the_start() {
    if !has_node("NUMA nodes that are refused") {
        return;
    }
    for (words, parts) in [
        (
            &["--numa", "1023"][..],
            ["invalid value 1023 for --numa", "no NUMA node 1023: it has"],
        ),
        (
            &["--numa", "near"],
            ["invalid value near for --numa", "choose gpu, or"],
        ),
        (
            &["--numa", "gpu"],
            ["--gpu software is a device without one", "such as --numa 0"],
        ),
    ] {
        let outcome = Scratch::new().run(&[&["run"], words].concat());
        outcome.assert_refused(USAGE, &parts);
    }
}

#[test]
fn a_gpu_whose_node_the_host_does_not_tell_is_refused() {
    // The address that the stand-in driver tells of its first device.
    if Path::new("/sys/bus/pci/devices/0000:01:00.0/numa_node").exists() {
        eprintln!("skipped: this host has a PCI device where the stand-in driver says it is");
        return;
    }
    let words = ["run", "--gpu", "cuda:0,memory=64M", "--numa", "gpu"];
    let outcome = Machine::new().run(&words);
    let parts = [
        "NUMA node of --gpu cuda:0,memory=64M",
        "PCI device 0000:01:00.0",
        "--numa 0",
    ];
    outcome.assert_refused(USAGE, &parts);
}
