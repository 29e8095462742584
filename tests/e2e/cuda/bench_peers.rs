//! `causeway bench gpu --peer`: that two GPUs are measured, on either back end.

use causeway_bench_workloads::{PEER_LINES, PeerWork};
use serde_json::Value;

use crate::command::{Outcome, alone, kvm};
use crate::origin::assert_origin;
use crate::schema;
use crate::standin::Machine;

const MIB: u64 = 1 << 20;
/// The benchmark with little memory, which the software engine stores to and loads quickly.
const WORDS: [&str; 6] = ["bench", "gpu", "--peer", "--mib", "1", "--repetitions"];

fn run(machine: &Machine, gpus: [&str; 2]) -> (Outcome, Value) {
    let rest = ["2", "--json", "p.json", "--gpu", gpus[0], "--gpu", gpus[1]];
    let words = [&WORDS[..], &rest].concat();
    let outcome = machine.run(&words);
    outcome.assert_passed();
    let report = machine.json("p.json");
    assert_origin(&report, &words);
    assert_eq!(report["schema"], "causeway.bench-gpu/1");
    schema::assert_valid(&report);
    assert_eq!(report["passed"], true);
    for device in ["device", "peer"] {
        assert!(report[device]["name"].is_string(), "{device}: {report}");
    }
    for words in ["GPU 0: ", "GPU 1: ", "GB/s guest", "GB/s native"] {
        assert!(outcome.stdout.contains(words), "{words}: {outcome:?}");
    }
    (outcome, report)
}

/// Checks that each line is there in all its sizes, and returns their samples.
fn assert_complete(report: &Value) -> &[Value] {
    let lines = report["lines"].as_array().unwrap();
    for line in PEER_LINES {
        let peers = line.peers().unwrap();
        let found: Vec<_> = lines
            .iter()
            .filter(|found| found["line"] == line.name())
            .collect();
        let sizes = found.iter().map(|found| found["bytes"].as_u64().unwrap());
        let sizes: Vec<u64> = sizes.collect();
        match peers.work {
            PeerWork::CopyTo | PeerWork::CopyOf => assert_eq!(sizes, [4 << 10, 256 << 10, MIB]),
            PeerWork::Follow => assert_eq!(sizes, [0]),
            PeerWork::Store | PeerWork::Load => assert_eq!(sizes, [MIB]),
        }
        for line in found {
            let numbers = (&line["peers"]["user"], &line["peers"]["owner"]);
            assert_eq!(numbers, (&peers.user.into(), &peers.owner.into()), "{line}");
            let has_rate = line["peers"]["guest_gb_per_s"].as_f64() > Some(0.0);
            assert_eq!(has_rate, peers.work != PeerWork::Follow, "{line}");
            assert_eq!(line["path"], "data");
            let exits = &line["exits"];
            assert_eq!(exits["user_space_per_operation"], 0.0, "{line}");
            assert_eq!(exits["user_space_per_operation_by_vmm"], 0.0, "{line}");
        }
    }
    lines
}

fn samples(times: &Value) -> Option<usize> {
    times["samples_ns"].as_array().map(Vec::len)
}

#[test]
fn two_gpus_are_measured_in_the_guest_and_natively_in_turn_and_alone() {
    if !kvm("bench gpu --peer") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new().with("DEVICES", 2);
    let (_, report) = run(&machine, ["cuda:0,memory=256MiB", "cuda:1,memory=256MiB"]);
    for line in assert_complete(&report) {
        for times in [line, &line["alone"]] {
            for side in ["guest", "native"] {
                assert_eq!(samples(&times[side]), Some(2), "{side}: {line}");
            }
        }
        let rates = ["guest_gb_per_s", "native_gb_per_s"].map(|side| &line["peers"][side]);
        assert_eq!(rates[0].is_null(), rates[1].is_null(), "{line}");
    }
}

#[test]
fn two_devices_of_the_hosts_cores_are_measured_in_the_guest() {
    if !kvm("bench gpu --peer on the host's cores") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new();
    for keys in ["", ",isolation=process"] {
        let gpus = [format!("software:0{keys}"), format!("software:1{keys}")];
        let (outcome, report) = run(&machine, [&gpus[0], &gpus[1]]);
        for line in assert_complete(&report) {
            assert_eq!(samples(&line["guest"]), Some(2), "{line}");
            assert!(line["native"].is_null(), "{line}");
        }
        let said = "only the guest is timed";
        assert!(outcome.stderr.contains(said), "{outcome:?}");
    }
}

#[test]
fn one_line_of_two_gpus_can_be_had_with_more_repetitions() {
    if !kvm("bench gpu --peer --only") {
        return;
    }
    let machine = Machine::new();
    let gpus = [
        "--gpu",
        "software:0",
        "--gpu",
        "software:1",
        "--json",
        "p.json",
    ];
    let only = ["130", "--only", "copies by GPU 1 of memory of GPU 0"];
    machine
        .run(&[&WORDS[..], &only, &gpus].concat())
        .assert_passed();
    let report = machine.json("p.json");
    let lines = report["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 3, "{report}");
    assert_eq!(samples(&lines[0]["guest"]), Some(130));
}

#[test]
fn what_two_gpus_cannot_do_is_refused_with_the_way_out() {
    let two = ["--gpu", "software:0", "--gpu", "software:1"];
    let refused = |words: &[&str], code, parts: &[&str]| {
        let words = [&["bench", "gpu"], words].concat();
        let machine = Machine::new().with("DEVICES", 2).with("PEERS", 0);
        machine.run(&words).assert_refused(code, parts);
    };
    refused(&["--peer"], 2, &["--gpu names 1: give two"]);
    let one = ["--peer", "--gpu", "software"];
    refused(&one, 2, &["--gpu names 1: give two"]);
    let three = [&["--peer", "--gpu", "software:2"], &two[..]].concat();
    refused(&three, 2, &["--gpu names 3: give two"]);
    let same = ["--peer", "--gpu", "cuda:1", "--gpu", "cuda:1"];
    refused(&same, 2, &["--gpu cuda:1 names a GPU that another"]);
    refused(&two, 2, &["--gpu software:1 is one GPU too many", "--peer"]);
    let peer = [&["--peer"], &two[..]].concat();
    let with = |words: &[&'static str]| [&peer[..], words].concat();
    refused(&with(&["--mib", "0"]), 2, &["0 for --mib: choose 1 to"]);
    refused(&with(&["--repetitions", "200"]), 2, &["choose 1 to 113"]);
    let parts = ["software:0 has 1024 MiB", "choose --mib 504 or less"];
    refused(&with(&["--mib", "505"]), 2, &parts);
    let line = ["--only", "launch and wait"];
    let parts = ["launch and wait for --only", "copies by GPU 1 of memory"];
    refused(&with(&line), 2, &parts);
    let apart = ["--peer", "--gpu", "cuda:0", "--gpu", "cuda:1"];
    refused(&apart, 8, &["cuda:0 and --gpu cuda:1 cannot be peers"]);
    let missing = ["--peer", "--gpu", "cuda:0", "--gpu", "cuda:7"];
    refused(&missing, 8, &["GPU 7 of --gpu does not exist"]);
}
