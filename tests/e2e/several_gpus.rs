//! VMs with several GPUs: kernels of one use memory of another where its owner allows it.

use crate::command::{Scratch, alone, kvm};
use crate::report::{self, Report};
use crate::standin::Machine;

/// Rounds in which the right is taken back, and the bytes shared.
const ARGUMENTS: [&str; 4] = ["--guest", "peers", "--arguments", "mib=4,rounds=3"];
/// Phases of the data path that cross from one GPU to another.
const CROSSING: [&str; 4] = [
    "loads of a peer's memory",
    "stores to a peer's memory",
    "copies to a peer's memory",
    "copies of a peer's memory",
];

/// Checks that memory crossed, without an exit.
fn assert_crossed(report: &Report) {
    assert_eq!(report.outcome(), "pass", "{}", report.0);
    report.assert_exit_free();
    for name in CROSSING {
        let mut data = report.phases().filter(|phase| phase.is_data());
        assert!(data.any(|phase| phase.name() == name), "no phase {name}");
        let ratios = report.0["ratios"].as_array().unwrap();
        assert!(
            ratios.iter().any(|it| it["name"] == name),
            "no figure {name}"
        );
    }
}

fn on_software(gpus: [&str; 2], vms: &str) {
    if !kvm("peers") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let gpus = ["--gpu", gpus[0], "--gpu", gpus[1], "--vms", vms];
    let (outcome, report) = report::run(&scratch, &[&ARGUMENTS[..], &gpus].concat());
    outcome.assert_passed();
    assert_crossed(&report);
    let name = report.0["further_backends"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("software 1, "), "{name}");
    for vm in report.0["vms"].as_array().unwrap() {
        assert_eq!(vm["further_gpus"][0]["gpu"], 1, "{vm}");
    }
}

#[test]
fn one_vm_uses_memory_of_one_software_device_by_another() {
    on_software(["software:0", "software:1"], "1");
}

#[test]
fn two_vms_share_memory_across_software_devices() {
    on_software(["software:0", "software:1"], "2");
}

#[test]
fn two_vms_share_memory_across_software_devices_in_worker_processes() {
    let isolated = [
        "software:0,isolation=process",
        "software:1,isolation=process",
    ];
    on_software(isolated, "2");
}

fn on_standin(vms: &str) {
    if !kvm("peers on CUDA") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new().with("DEVICES", 2);
    let gpus = ["cuda:0,memory=256MiB", "cuda:1,memory=256MiB"];
    let gpus = ["--gpu", gpus[0], "--gpu", gpus[1], "--vms", vms];
    let (outcome, report) = machine.guests(&[&ARGUMENTS[..], &gpus].concat());
    outcome.assert_passed();
    assert_crossed(&report);
}

#[test]
fn one_vm_uses_memory_of_one_gpu_by_another() {
    on_standin("1");
}

#[test]
fn two_vms_share_memory_across_gpus() {
    on_standin("2");
}

#[test]
fn gpus_that_cannot_be_peers_are_named() {
    if !kvm("no peers on CUDA") {
        return;
    }
    let machine = Machine::new().with("DEVICES", 2).with("PEERS", 0);
    let gpus = ["--gpu", "cuda:all,memory=256MiB"];
    let (outcome, _) = machine.guests(&[&ARGUMENTS[..], &gpus].concat());
    let said = "GPU 1 cannot be a peer of GPU 0";
    assert!(
        outcome.code != 0 && outcome.stderr.contains(said),
        "{outcome:?}"
    );
}

#[test]
fn doctor_tells_which_gpus_reach_each_others_memory() {
    let found = |machine: &Machine| {
        let outcome = machine.run(&["doctor", "--json"]);
        let diagnosis: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        let findings = diagnosis["findings"].as_array().unwrap().clone();
        let mut pairs = findings.into_iter().filter(|it| it["name"] == "CUDA pairs");
        let finding = pairs.next();
        finding.map(|it| {
            format!(
                "{} {}",
                it["state"].as_str().unwrap(),
                it["found"].as_str().unwrap()
            )
        })
    };
    let three = "GPUs 0 and 1: yes, GPUs 0 and 2: yes, GPUs 1 and 2: yes";
    assert_eq!(
        found(&Machine::new().with("DEVICES", 3)),
        Some(format!("yes {three}"))
    );
    let apart = Machine::new().with("DEVICES", 2).with("PEERS", 0);
    assert_eq!(found(&apart).as_deref(), Some("no GPUs 0 and 1: no"));
    assert_eq!(found(&Machine::new()), None);
}

#[test]
fn a_gpu_that_there_is_not_ends_the_run_before_guests_start() {
    if !kvm("an absent second GPU") {
        return;
    }
    let machine = Machine::new();
    let gpus = ["--gpu", "cuda:0", "--gpu", "cuda:1"];
    let outcome = machine.run(&[&["run"], &ARGUMENTS[..], &gpus].concat());
    assert_eq!(outcome.code, 8, "{outcome:?}");
    assert!(outcome.stderr.contains("cuda:1"), "{outcome:?}");
}

#[test]
fn a_guest_with_one_gpu_says_that_it_needs_two() {
    if !kvm("peers with one GPU") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, _) = report::run(&scratch, &ARGUMENTS);
    let said = "this guest needs two";
    assert!(
        outcome.code != 0 && outcome.stderr.contains(said),
        "{outcome:?}"
    );
}

#[test]
fn a_hostile_guest_with_two_gpus_leaves_its_neighbour_verified() {
    if !kvm("hostile with two GPUs") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let gpus = ["--gpu", "software:0", "--gpu", "software:1"];
    let words = ["--guest", "hostile", "--vms", "2"];
    let (outcome, report) = report::run(&scratch, &[&words[..], &gpus].concat());
    outcome.assert_passed();
    assert_eq!(report.outcome(), "pass");
}
