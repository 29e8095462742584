//! Devices that cannot be had: one message each, with the way out.

use causeway_nested::devices::{EDU, MEMORY, NEIGHBOUR, OTHER_EDU, RANDOM, SHARED};
use causeway_nested::{Command, Lease};

use super::hand_out;
use crate::machines::{CAUSEWAY, machine_with_devices, refused, run, run_command, shell};

/// Exit codes.
const USAGE: i32 = 2;
const GPU: i32 = 8;
const DEVICE: i32 = 9;

/// Runs what a message says stands behind `as root: `, as a person would.
#[track_caller]
fn follow(machine: &Lease, message: &str) {
    let line = message.lines().find(|line| line.contains("as root: "));
    let (_, commands) = line.and_then(|line| line.split_once("as root: ")).unwrap();
    machine.run(&shell(commands)).assert_code(0);
}

#[test]
fn a_device_that_another_driver_has_is_had_by_the_commands_that_the_message_names() {
    let Some(machine) = machine_with_devices("a device bound elsewhere") else {
        return;
    };
    RANDOM.bind(&machine, "virtio-pci");
    let words = ["--guest", "exits", "--vfio", RANDOM.address];
    let outcome = refused(&machine, &words, DEVICE, &["virtio-pci", "vfio-pci"]);
    follow(&machine, &outcome.stderr);
    let (outcome, _) = run(&machine, &words);
    outcome.assert_code(0);
    MEMORY.unbind(&machine);
    let gpu = format!("vfio:{}", MEMORY.address);
    let words = ["--guest", "exits", "--gpu", &gpu];
    let outcome = refused(&machine, &words, GPU, &["no driver", "vfio-pci"]);
    follow(&machine, &outcome.stderr);
    let (outcome, _) = run(&machine, &words);
    outcome.assert_code(0);
}

#[test]
fn a_device_that_is_not_alone_names_those_that_are_in_the_way() {
    let Some(machine) = machine_with_devices("a group that is not viable") else {
        return;
    };
    hand_out(&machine, &[SHARED]);
    NEIGHBOUR.bind(&machine, "virtio-pci");
    let words = ["--guest", "exits", "--vfio", SHARED.address];
    let neighbour = format!("{} (driver virtio-pci)", NEIGHBOUR.address);
    refused(&machine, &words, DEVICE, &["group", &neighbour, "unbind"]);
    NEIGHBOUR.unbind(&machine);
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    let device = super::edu::device(&report, 0, 0);
    assert_eq!(device["companions"][0], NEIGHBOUR.address, "{device}");
}

#[test]
fn a_device_that_is_given_twice_or_in_use_or_not_there_is_named() {
    let Some(machine) = machine_with_devices("devices given twice, in use, absent") else {
        return;
    };
    hand_out(&machine, &[EDU, OTHER_EDU, MEMORY]);
    let refused = |words: &[&str], code, parts: &[&str]| {
        let words = [&["--guest", "exits"], words].concat();
        refused(&machine, &words, code, parts)
    };
    let (edu, memory) = (EDU.address, MEMORY.address);
    let gpu = format!("vfio:{memory}");
    refused(
        &["--vfio", edu, "--vfio", "01:00.0"],
        USAGE,
        &[edu, "twice"],
    );
    refused(
        &["--vfio", memory, "--gpu", &gpu],
        USAGE,
        &[memory, "twice"],
    );
    refused(
        &["--vfio", "0000:1f:00.0"],
        DEVICE,
        &["0000:1f:00.0", "lspci"],
    );
    refused(&["--vfio", "edu"], USAGE, &["edu", "0000:00:03.0"]);
    refused(&["--vfio", "0000:00:10.0"], DEVICE, &["bridge"]);
    // Two VMs cannot have one device.
    refused(&["--vfio", edu, "--vms", "2"], USAGE, &["--vms"]);
    let holding = ["--guest", "edu", "--arguments", "hold", "--vfio", edu];
    let command = run_command(&holding);
    let job = machine.start(&command);
    machine.wait_for_text(&command, job, "in use");
    refused(
        &["--vfio", edu],
        DEVICE,
        &[edu, "in use by process", "causeway"],
    );
    machine.signal(job, 9, false);
    machine.finish(&command, job);
    // The kernel resets it and gives it back, however its user has ended.
    let (outcome, _) = run(&machine, &["--guest", "exits", "--vfio", edu]);
    outcome.assert_code(0);
}

#[test]
fn a_bar_that_cannot_be_partitioned_is_named() {
    let Some(machine) = machine_with_devices("BARs that cannot be partitioned") else {
        return;
    };
    hand_out(&machine, &[MEMORY]);
    let address = MEMORY.address;
    for (more, code, part) in [
        ("bar=5", GPU, "has no BAR 5"),
        ("bar=0", GPU, "BAR 0"),
        ("bar=7", USAGE, "invalid value 7 for --gpu bar"),
        ("memory=65", GPU, "invalid value 65 MiB for --gpu memory"),
    ] {
        let gpu = format!("vfio:{address},{more}");
        refused(
            &machine,
            &["--guest", "exits", "--gpu", &gpu],
            code,
            &[part],
        );
    }
}

/// A user who may use KVM, and is nobody else.
fn as_user(script: &str) -> Command {
    let words = ["--reuid", "1000", "--clear-groups", "/bin/sh", "-c", script];
    Command::new("/bin/setpriv", &words)
}

#[test]
fn who_may_not_open_a_device_or_lock_its_memory_is_told() {
    let Some(machine) = machine_with_devices("devices without rights") else {
        return;
    };
    hand_out(&machine, &[EDU]);
    let group = machine.run(&shell(&format!(
        "cd -P {} && echo ${{PWD##*/}}",
        EDU.file("iommu_group")
    )));
    let file = format!("/dev/vfio/{}", group.stdout.trim());
    let command = format!("{CAUSEWAY} run --guest exits --vfio {}", EDU.address);
    let refused = |script: &str, parts: &[&str]| {
        let outcome = machine.run(&as_user(script));
        outcome.assert_code(DEVICE);
        for part in parts {
            assert!(
                outcome.stderr.contains(part),
                "`{part}`: {}",
                outcome.text()
            );
        }
    };
    machine.allow_everybody("/dev/kvm");
    refused(&command, &["no permission to open", &file]);
    machine.allow_everybody(&file);
    let limited = format!("ulimit -l 1024 && {command}");
    refused(&limited, &["lock", "RLIMIT_MEMLOCK", "ulimit -l"]);
}

#[test]
fn doctor_names_the_devices_that_can_be_handed_out_and_for_what() {
    let Some(machine) = machine_with_devices("doctor and devices") else {
        return;
    };
    hand_out(&machine, &[EDU, MEMORY]);
    let outcome = machine.run(&Command::new(CAUSEWAY, &["doctor", "--json"]));
    let edu = format!("--vfio {}", EDU.address);
    let memory = format!("--gpu vfio:{},bar=2", MEMORY.address);
    for part in [&edu, &memory] {
        assert!(outcome.stdout.contains(part), "{part}: {}", outcome.text());
    }
}
