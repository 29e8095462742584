//! `--gpu auto`, and where sessions live.

use crate::command::{Scratch, kvm};
use crate::standin::{Machine, NAME};

const AUTO: [&str; 5] = ["run", "--guest", "exits", "--gpu", "auto"];

#[test]
fn auto_takes_a_gpu_where_there_is_one_and_says_so() {
    if !kvm("auto with a GPU") {
        return;
    }
    let outcome = Machine::new().run(&AUTO);
    outcome.assert_passed();
    let said = format!("causeway: --gpu auto selects cuda on this host ({NAME})");
    assert!(outcome.stderr.contains(&said), "{outcome:?}");
    assert!(outcome.stdout.contains("exits on cuda, "), "{outcome:?}");
}

#[test]
fn auto_takes_the_hosts_cores_where_there_is_no_gpu_and_says_why() {
    if !kvm("auto without a GPU") {
        return;
    }
    for (machine, why) in [
        (Machine::new().with("DEVICES", 0), "finds no GPU"),
        (
            Machine::new().with("DRIVER_VERSION", 12030),
            "it is for CUDA 12.3",
        ),
    ] {
        let outcome = machine.run(&AUTO);
        outcome.assert_passed();
        assert!(
            outcome
                .stderr
                .contains("--gpu auto selects software on this host (")
                && outcome.stderr.contains(why),
            "{why}: {outcome:?}"
        );
        assert!(
            outcome.stdout.contains("exits on software, "),
            "{outcome:?}"
        );
    }
}

#[test]
fn auto_without_a_driver_says_that_there_is_none() {
    if !kvm("auto without a driver") || driver_installed() {
        return;
    }
    let outcome = Scratch::new().run(&AUTO);
    outcome.assert_passed();
    assert!(outcome.stderr.contains("libcuda.so.1"), "{outcome:?}");
    assert!(
        outcome.stdout.contains("exits on software, "),
        "{outcome:?}"
    );
}

#[test]
fn limits_go_with_whatever_auto_takes() {
    if !kvm("auto with limits") {
        return;
    }
    let machine = Machine::new();
    let (outcome, report) = machine.guests(&["--guest", "exits", "--gpu", "auto,memory=64MiB"]);
    outcome.assert_passed();
    assert_eq!(report.0["backend"]["memory_bytes_per_vm"], 64 << 20);
}

#[test]
fn the_session_of_a_single_vm_may_live_in_the_process_of_the_vm() {
    if !kvm("a session inside") {
        return;
    }
    let gpu = "cuda,isolation=none,memory=256MiB";
    let (outcome, report) = Machine::new().guests(&["--guest", "compute", "--gpu", gpu]);
    outcome.assert_passed();
    report.assert_exit_free();
    assert_eq!(report.0["vms"][0]["isolation"], "none");
}

/// Whether this machine has a driver of its own, so that its absence cannot be shown.
pub fn driver_installed() -> bool {
    let installed = std::path::Path::new("/dev/nvidiactl").exists();
    if installed {
        eprintln!("skipped: this machine has a GPU's driver");
    }
    installed
}
