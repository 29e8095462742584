//! VMs with several GPUs: kernels of one use memory of another where its owner allows it.

use serde_json::Value;

use crate::command::{Scratch, alone, kvm};
use crate::report::{self, Report};
use crate::standin::Machine;
use crate::stat::{await_published, end, records, stat};

/// Rounds in which the right is taken back, and the bytes shared.
const ARGUMENTS: [&str; 4] = ["--guest", "peers", "--arguments", "mib=4,rounds=3"];
/// Phases of the data path that cross from one GPU to another.
const CROSSING: [&str; 4] = [
    "loads of a peer's memory",
    "stores to a peer's memory",
    "copies to a peer's memory",
    "copies of a peer's memory",
];
/// The same where the GPUs cannot be peers.
const COPYING: [&str; 2] = [
    "copies of memory of a GPU that is no peer",
    "copies to memory of a GPU that is no peer",
];
/// Bytes shared.
const BYTES: u64 = 4 << 20;

/// Checks that memory crossed, without an exit.
fn assert_crossed(report: &Report) {
    assert_measured(report, &CROSSING);
    let [direct, staged] = moved(report);
    assert!(
        direct >= 8 * BYTES && staged == 0,
        "{direct} and {staged} bytes"
    );
}

/// Checks that memory was copied through the host, without an exit.
fn assert_copied(report: &Report) {
    assert_measured(report, &COPYING);
    let [direct, staged] = moved(report);
    assert!(
        staged >= 8 * BYTES && direct == 0,
        "{direct} and {staged} bytes"
    );
}

/// Bytes that sessions have copied directly and through the host, each in some time.
fn moved(report: &Report) -> [u64; 2] {
    let of = |session: &serde_json::Value, name: &str| {
        let [bytes, ns] = ["bytes", "ns"].map(|unit| {
            let value = &session[format!("{name}_{unit}")];
            value.as_u64().unwrap_or_else(|| panic!("{session}"))
        });
        assert_eq!(bytes == 0, ns == 0, "{session}");
        bytes
    };
    let vms = report.0["vms"].as_array().unwrap();
    let sessions = vms.iter().flat_map(|vm| {
        let further = vm["further_gpus"].as_array();
        let further = further.into_iter().flatten();
        further.map(|it| &it["session"]).chain([&vm["session"]])
    });
    sessions.fold([0; 2], |[direct, staged], session| {
        [
            direct + of(session, "direct"),
            staged + of(session, "staged"),
        ]
    })
}

fn assert_measured(report: &Report, phases: &[&str]) {
    assert_eq!(report.outcome(), "pass", "{}", report.0);
    report.assert_exit_free();
    for &name in phases {
        let mut data = report.phases().filter(|phase| phase.is_data());
        assert!(data.any(|phase| phase.name() == name), "no phase {name}");
        let ratios = report.0["ratios"].as_array().unwrap();
        assert!(
            ratios.iter().any(|it| it["name"] == name),
            "no figure {name}"
        );
    }
}

/// Runs the guest on two devices, and checks the report by `check`.
fn on_software(gpus: [&str; 2], vms: &str, check: fn(&Report)) {
    if !kvm("peers") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let gpus = ["--gpu", gpus[0], "--gpu", gpus[1], "--vms", vms];
    let (outcome, report) = report::run(&scratch, &[&ARGUMENTS[..], &gpus].concat());
    outcome.assert_passed();
    check(&report);
    let name = report.0["further_backends"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("software 1, "), "{name}");
    for vm in report.0["vms"].as_array().unwrap() {
        assert_eq!(vm["further_gpus"][0]["gpu"], 1, "{vm}");
    }
    let owner = &report.0["vms"][0]["session"];
    let is_for_peer = |it: &Value| it["gpu"] == 1 && it["access"] == "read-write";
    assert!(
        owner["exported"]
            .as_array()
            .unwrap()
            .iter()
            .any(is_for_peer),
        "{owner}"
    );
}

#[test]
fn one_vm_uses_memory_of_one_software_device_by_another() {
    on_software(["software:0", "software:1"], "1", assert_crossed);
}

#[test]
fn two_vms_share_memory_across_software_devices() {
    on_software(["software:0", "software:1"], "2", assert_crossed);
}

#[test]
fn two_vms_share_memory_across_software_devices_in_worker_processes() {
    let isolated = [
        "software:0,isolation=process",
        "software:1,isolation=process",
    ];
    // The user's worker ends when a right is taken back under its kernel, and its counts with it.
    on_software(isolated, "2", |report| assert_measured(report, &CROSSING));
}

#[test]
fn one_vm_copies_where_software_devices_cannot_be_peers() {
    on_software(["software:0,peers=no", "software:1"], "1", assert_copied);
}

#[test]
fn two_vms_copy_where_software_devices_cannot_be_peers() {
    on_software(["software:0", "software:1,peers=no"], "2", assert_copied);
}

#[test]
fn two_vms_copy_in_worker_processes_of_devices_that_cannot_be_peers() {
    let isolated = [
        "software:0,isolation=process,peers=no",
        "software:1,isolation=process",
    ];
    on_software(isolated, "2", assert_copied);
}

/// Runs the guest on two GPUs of `machine`, whose keys are `keys`, and checks the report.
fn on_standin(machine: &Machine, keys: &str, vms: &str, check: fn(&Report)) {
    if !kvm("peers on CUDA") {
        return;
    }
    let _alone = alone();
    let gpus = [0, 1].map(|gpu| format!("cuda:{gpu},memory=256MiB{keys}"));
    let gpus = ["--gpu", &gpus[0], "--gpu", &gpus[1], "--vms", vms];
    let (outcome, report) = machine.guests(&[&ARGUMENTS[..], &gpus].concat());
    outcome.assert_passed();
    check(&report);
}

fn two_gpus() -> Machine {
    Machine::new().with("DEVICES", 2)
}

#[test]
fn one_vm_uses_memory_of_one_gpu_by_another() {
    on_standin(&two_gpus(), "", "1", assert_crossed);
}

#[test]
fn two_vms_share_memory_across_gpus() {
    on_standin(&two_gpus(), "", "2", assert_crossed);
}

#[test]
fn one_vm_copies_where_gpus_cannot_be_peers() {
    on_standin(&two_gpus().with("PEERS", 0), "", "1", assert_copied);
}

#[test]
fn two_vms_copy_where_gpus_cannot_be_peers() {
    on_standin(&two_gpus().with("PEERS", 0), "", "2", assert_copied);
}

#[test]
fn gpus_that_could_be_peers_copy_if_they_are_not_to_be() {
    on_standin(&two_gpus(), ",peers=no", "2", assert_copied);
}

/// Three devices, the second of which has most memory.
fn three_gpus() -> Machine {
    let memory_bytes = [2_u64 << 30, 4 << 30, 1 << 30].map(|bytes| bytes.to_string());
    Machine::new()
        .with("DEVICES", 3)
        .with("MEMORY", memory_bytes.join(","))
}

#[test]
fn auto_places_each_vm_on_a_gpu_with_room_and_says_where() {
    if !kvm("placed VMs") {
        return;
    }
    let words = ["--guest", "compute", "--vms", "3", "--gpu"];
    let (outcome, report) = three_gpus().guests(&[&words[..], &["cuda:auto,memory=1G"]].concat());
    outcome.assert_passed();
    report.assert_exit_free();
    let gpu_of = |vm: &serde_json::Value| vm["gpu"].as_u64().unwrap();
    let vms = report.0["vms"].as_array().unwrap();
    // Room for 1, 3 and 1 of them.
    assert_eq!(vms.iter().map(gpu_of).collect::<Vec<_>>(), [1, 1, 0]);
    assert!(vms.iter().all(|vm| vm.get("further_gpus").is_none()));
    for line in [
        "places vm2 on cuda:0 (",
        "places vm0, vm1 on cuda:1 (Causeway stand-in (no GPU), 4096 MiB free)",
    ] {
        assert!(outcome.stderr.contains(line), "{outcome:?}");
    }
    let unused = &report.0["further_backends"][1]["name"];
    assert_eq!(unused, "cuda:2,memory=1G, without a VM");
}

#[test]
fn placed_vms_share_memory_by_the_numbers_of_the_hosts_gpus() {
    if !kvm("peers that were placed") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new().with("DEVICES", 2);
    let gpus = ["--vms", "2", "--gpu", "cuda:auto,memory=256MiB"];
    let (outcome, report) = machine.guests(&[&ARGUMENTS[..], &gpus].concat());
    outcome.assert_passed();
    assert_crossed(&report);
    let vms = report.0["vms"].as_array().unwrap();
    assert_eq!((&vms[0]["gpu"], &vms[1]["gpu"]), (&0.into(), &1.into()));
}

#[test]
fn stat_says_where_placed_vms_are() {
    if !kvm("placed VMs for stat") {
        return;
    }
    let machine = Machine::new().with("DEVICES", 2);
    let words = ["run", "--guest", "greedy", "--vms", "2", "--timeout", "300"];
    let endless = ["--arguments", "seconds=200,steps=300"];
    let gpu = ["--gpu", "cuda:auto,memory=1G"];
    let running = machine.start(&[&words[..], &endless, &gpu].concat());
    await_published(machine.scratch(), &running);
    let pid = running.id().to_string();
    let seen = records(&stat(machine.scratch(), &[&pid, "--json", "--once"]));
    let places: Vec<_> = seen
        .iter()
        .map(|it| (it["guest"].as_str().unwrap(), it["gpu_number"].as_u64()))
        .collect();
    assert_eq!(places, [("vm0", Some(0)), ("vm1", Some(1))]);
    assert_eq!(seen[0]["gpu"], "cuda:0,memory=1G cuda:1,memory=1G");
    end(running);
}

#[test]
fn vms_that_fit_nowhere_are_refused_with_what_is_free_where() {
    let words = ["run", "--vms", "6", "--gpu", "cuda:auto,memory=1G"];
    let outcome = three_gpus().run(&words);
    assert_eq!(outcome.code, 2, "{outcome:?}");
    for words in [
        "--vms 6 with --gpu cuda:auto,memory=1G does not fit",
        "cuda:0 has 2048 MiB free, room for 1",
        "cuda:1 has 4096 MiB free, room for 3",
        "cuda:2 has 1024 MiB free, room for 1",
    ] {
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
}

#[test]
fn auto_goes_with_no_other_gpu_and_with_no_other_command() {
    let refused = |words: &[&str], said: &str| {
        let outcome = three_gpus().run(words);
        assert!(
            outcome.code == 2 && outcome.stderr.contains(said),
            "{outcome:?}"
        );
    };
    let both = ["run", "--gpu", "cuda:auto", "--gpu", "cuda:1"];
    refused(&both, "--gpu cuda:auto and --gpu cuda:1 cannot be given");
    let serve = ["serve", "--socket", "s", "--gpu", "cuda:auto"];
    refused(&serve, "invalid value auto for --gpu cuda");
    let bench = ["bench", "gpu", "--gpu", "cuda:auto"];
    refused(&bench, "invalid value auto for --gpu cuda");
}

#[test]
fn auto_without_a_driver_is_not_available() {
    let machine = Machine::new().with("DEVICES", 0);
    let outcome = machine.run(&["run", "--gpu", "cuda:auto"]);
    assert_eq!(outcome.code, 8, "{outcome:?}");
    let said = "--gpu cuda:auto is not available";
    assert!(outcome.stderr.contains(said), "{outcome:?}");
}

#[test]
fn doctor_tells_which_gpus_reach_each_others_memory() {
    let found = |machine: &Machine| -> Vec<String> {
        let outcome = machine.run(&["doctor", "--json"]);
        let diagnosis: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        let findings = diagnosis["findings"].as_array().unwrap();
        let pairs = findings.iter().filter(|it| it["name"] == "CUDA pair");
        let told = |it: &serde_json::Value| {
            let [state, found] = ["state", "found"].map(|key| it[key].as_str().unwrap());
            format!("{state} {found}")
        };
        pairs.map(told).collect()
    };
    let three = found(&Machine::new().with("DEVICES", 3));
    assert_eq!(three.len(), 3, "{three:?}");
    for (pair, gpus) in three.iter().zip(["0 and 1", "0 and 2", "1 and 2"]) {
        let link = "; performance rank 0, atomics, as NVLink has them; ";
        let begins = pair.starts_with(&format!("yes GPUs {gpus}: peers; copies "));
        assert!(begins && pair.contains(link), "{pair}");
    }
    let apart = found(&Machine::new().with("DEVICES", 2).with("PEERS", 0));
    let [apart] = &apart[..] else {
        panic!("{apart:?}");
    };
    let begins = apart.starts_with("no GPUs 0 and 1: no peers; copies ");
    let link = "; performance rank 0, no atomics; ";
    assert!(begins && apart.contains(link), "{apart}");
    assert_eq!(found(&Machine::new()), [""; 0]);
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
