//! Impossible requests: one line that names the value and the way out, the right exit code, and
//! nothing left behind.

use crate::command::{Scratch, kvm};
use crate::standin::{Machine, NAME};

use super::choice::driver_installed;

const USAGE: i32 = 2;
const GPU: i32 = 8;

/// The exit code and what must be named, for a run with this `--gpu`.
#[track_caller]
fn refused(machine: &Machine, gpu: &str, vms: &str, code: i32, parts: &[&str]) {
    let words = ["run", "--guest", "exits", "--gpu", gpu, "--vms", vms];
    let outcome = machine.run(&words);
    outcome.assert_refused(code, parts);
    assert!(outcome.stderr.contains(gpu) || code == USAGE, "{outcome:?}");
}

#[test]
fn drivers_that_will_not_do_are_refused_with_what_would() {
    if !kvm("drivers that will not do") {
        return;
    }
    for place in ["", ",isolation=none"] {
        let gpu = format!("cuda{place}");
        let old = Machine::new().with("DRIVER_VERSION", 12030);
        refused(
            &old,
            &gpu,
            "1",
            GPU,
            &["it is for CUDA 12.3", "12.4 or later"],
        );
        let none = Machine::new().with("DEVICES", 0);
        refused(&none, &gpu, "1", GPU, &["finds no GPU", "lspci"]);
    }
}

#[test]
fn a_machine_without_a_driver_is_told_how_to_get_one() {
    if !kvm("no driver") || driver_installed() {
        return;
    }
    for command in [&["run"][..], &["bench", "gpu"], &["bench", "lives"]] {
        let outcome = Scratch::new().run(&[command, &["--gpu", "cuda"]].concat());
        let way = "install NVIDIA's driver, or use --gpu software";
        outcome.assert_refused(GPU, &["libcuda.so.1", way]);
    }
}

/// Needs no KVM.
#[test]
fn a_server_without_its_gpu_fails_when_it_starts() {
    // The machine would notice a socket that is left.
    let serve =
        |machine: &Machine, gpu| machine.run(&["serve", "--socket", "socket", "--gpu", gpu]);
    let none = Machine::new().with("DEVICES", 0);
    serve(&none, "cuda").assert_refused(GPU, &["--gpu cuda is not", "finds no GPU"]);
    let one = Machine::new();
    serve(&one, "cuda:7").assert_refused(GPU, &["no GPU 7", "the driver has 1"]);
    let bad = Machine::new().with("DRIVER_VERSION", 12030);
    serve(&bad, "cuda").assert_refused(GPU, &["it is for CUDA 12.3"]);
    if !driver_installed() {
        let words = ["serve", "--socket", "socket", "--gpu", "cuda"];
        let outcome = Scratch::new().run(&words);
        outcome.assert_refused(GPU, &["libcuda.so.1", "or use --gpu software"]);
    }
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    if !kvm("a GPU that is not there") {
        return;
    }
    let parts = ["no GPU 7", "the driver has 1", NAME, "counted from 0"];
    refused(&Machine::new(), "cuda:7", "1", GPU, &parts);
    refused(&Machine::new(), "cuda:7,isolation=none", "1", GPU, &parts);
    let two = Machine::new().with("DEVICES", 2);
    refused(&two, "cuda:2", "1", GPU, &["no GPU 2", "the driver has 2"]);
    two.run(&["run", "--guest", "exits", "--gpu", "cuda:1"])
        .assert_passed();
}

#[test]
fn a_gpu_that_cannot_map_memory_is_refused_with_the_attributes_name() {
    if !kvm("a GPU without virtual memory management") {
        return;
    }
    // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    let machine = Machine::new().with("ATTRIBUTES", "102=0");
    let parts = ["VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED as 0", "1 is needed"];
    refused(&machine, "cuda", "1", GPU, &parts);
}

#[test]
fn more_than_the_card_has_is_refused_with_what_it_has() {
    if !kvm("more than the card has") {
        return;
    }
    let machine = Machine::new();
    for (gpu, vms, parts) in [
        ("cuda,memory=5GiB", "1", ["4096 MiB", "not 5120", "memory="]),
        (
            "cuda,sms=133",
            "1",
            ["132 multiprocessors", "not 133", "sms="],
        ),
        (
            "cuda,sms=60",
            "3",
            ["64 for each VM", "2 at a time, not for 3", "run fewer"],
        ),
        (
            "cuda,sms=100",
            "2",
            ["104 for each VM", "1 at a time, not for 2", "run fewer"],
        ),
    ] {
        refused(&machine, gpu, vms, GPU, &parts);
    }
}

#[test]
fn words_that_mean_nothing_are_refused_before_anything_starts() {
    let machine = Machine::new();
    for (gpu, vms, parts) in [
        ("cuda,colour=red", "1", ["`colour`", "its keys are sms"]),
        ("cuda,cores=4", "1", ["`cores`", "sms"]),
        ("software,sms=4", "1", ["`sms`", "cores"]),
        ("cuda:one", "1", ["value one for --gpu cuda", "0 to 255"]),
        ("cuda,sms=0", "1", ["value 0 for --gpu sms", "1 to"]),
        (
            "cuda,memory=much",
            "1",
            ["value much for --gpu memory", "MiB"],
        ),
        (
            "cuda,isolation=outside",
            "1",
            ["value outside", "none or process"],
        ),
        (
            "auto,isolation=outside",
            "1",
            ["value outside", "none or process"],
        ),
    ] {
        refused(&machine, gpu, vms, USAGE, &parts);
    }
}

#[test]
fn several_vms_on_a_gpu_must_have_processes_of_their_own() {
    if !kvm("several VMs inside") {
        return;
    }
    let parts = [
        "value none",
        "--vms 2",
        "leave isolation out, or run one VM",
    ];
    refused(&Machine::new(), "cuda,isolation=none", "2", USAGE, &parts);
}

#[test]
fn several_processes_on_a_gpu_must_have_sessions_in_processes_of_their_own() {
    let words = [
        "serve",
        "--socket",
        "socket",
        "--gpu",
        "cuda,isolation=none",
    ];
    let outcome = Machine::new().run(&words);
    let parts = ["value none", "--processes 8", "(--processes 1)"];
    outcome.assert_refused(USAGE, &parts);
}

#[test]
fn memory_that_may_not_be_locked_is_refused_with_the_limit() {
    if !kvm("a limit on locked memory") {
        return;
    }
    let machine = Machine::new().with("LOCKED_BYTES", 1 << 20);
    for gpu in ["cuda", "cuda,isolation=none"] {
        let outcome = machine.run(&["run", "--guest", "compute", "--gpu", gpu]);
        assert_eq!(outcome.code, 1, "{outcome:?}");
        let why = outcome
            .stderr
            .lines()
            .find(|line| line.contains("ulimit -l"));
        let why = why.unwrap_or_else(|| panic!("the limit is not named: {outcome:?}"));
        assert!(
            why.contains("host memory") && why.contains("cuMemHostRegister"),
            "{why}"
        );
    }
}

#[test]
fn host_memory_that_cannot_be_registered_is_refused_with_the_attributes_name() {
    if !kvm("a GPU that registers nothing") {
        return;
    }
    // CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
    let machine = Machine::new().with("ATTRIBUTES", "99=0");
    let outcome = machine.run(&["run", "--guest", "compute", "--gpu", "cuda"]);
    assert_ne!(outcome.code, 0, "{outcome:?}");
    assert!(
        outcome.stderr.contains("HOST_REGISTER_SUPPORTED"),
        "{outcome:?}"
    );
}
