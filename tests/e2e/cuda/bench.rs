//! `causeway bench`: that the benchmarks work. The figures of the stand-in mean nothing.

use std::time::Duration;

use causeway_bench_workloads::LINES;
use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Scratch, alone, kvm};
use crate::origin::assert_origin;
use crate::schema;
use crate::standin::{Machine, NAME};

#[test]
fn every_line_is_measured_in_the_guest_and_natively_and_the_data_path_never_exits() {
    if !kvm("bench gpu") {
        return;
    }
    let Some(machine) = Machine::new().with_vulkan("bench gpu") else {
        return;
    };
    let _alone = alone();
    let words = [
        "bench",
        "gpu",
        "--gpu",
        "cuda",
        "--repetitions",
        "2",
        "--json",
        "b.json",
    ];
    let running = machine.start(&words);
    let vmm = running.id();
    let outcome = running.finish();
    outcome.assert_passed();
    let report = machine.json("b.json");
    assert_eq!(report["schema"], "causeway.bench-gpu/1");
    schema::assert_valid(&report);
    assert_origin(&report, &words);
    assert_eq!(report["passed"], true);
    assert_eq!(report["device"]["driver"], "CUDA 13.0");
    assert!(report["device"]["name"].as_str().unwrap().contains(NAME));
    assert!(report["host"].is_object());
    let lines = report["lines"].as_array().unwrap();
    for line in LINES {
        let found = lines.iter().filter(|found| found["line"] == line.name());
        assert_ne!(found.count(), 0, "no `{}`: {report}", line.name());
        assert!(outcome.stdout.contains(line.name()), "{outcome:?}");
    }
    lines.iter().for_each(check_line);
    assert!(
        outcome
            .stdout
            .contains("summary: guest / native, the less favourable")
    );
    check_contexts(&machine.contexts(), vmm);
}

/// Asserts that guest and host had contexts at the same time in the first part of the benchmark,
/// and none beside the other's in the parts that follow.
fn check_contexts(contexts: &[(i32, u64)], vmm: i32) {
    let guests = contexts.iter().filter(|(process, _)| *process != vmm);
    let mut guests: Vec<i32> = guests.map(|(process, _)| *process).collect();
    guests.dedup();
    let [in_turn, alone] = guests[..] else {
        panic!("two guests: {contexts:?}");
    };
    let first = |process| {
        contexts
            .iter()
            .position(|(other, _)| *other == process)
            .unwrap()
    };
    let last = contexts
        .iter()
        .rposition(|(process, _)| *process == vmm)
        .unwrap();
    assert!(
        first(vmm) < first(in_turn) && first(in_turn) < first(alone),
        "{contexts:?}"
    );
    assert!(first(alone) < last, "the host follows: {contexts:?}");
    assert_ne!(
        contexts[first(in_turn)].1,
        0,
        "in turn with the host: {contexts:?}"
    );
    for (process, others) in contexts.iter().skip(first(alone)) {
        assert_eq!(*others, 0, "process {process} is not alone: {contexts:?}");
    }
}

fn check_line(line: &Value) {
    for side in ["guest", "native"] {
        let samples = line[side]["samples_ns"].as_array();
        let samples = samples.unwrap_or_else(|| panic!("no samples of the {side}: {line}"));
        assert_eq!(samples.len(), 2, "{line}");
        let positive = |sample: &Value| sample.as_f64().is_some_and(|ns| ns > 0.0);
        assert!(samples.iter().all(positive), "{line}");
    }
    assert!(line["guest_over_native"]["median"].as_f64().unwrap() > 0.0);
    let alone = &line["alone"];
    for single in [line, alone]
        .iter()
        .flat_map(|of| [&of["guest_single"], &of["native_single"]])
    {
        match line["line"].as_str().unwrap() {
            "launches, pipelined" => assert_eq!(single["reason"], "of_many", "{line}"),
            // Two samples of one operation each have no percentile.
            "copy to the device" => assert_eq!(single["reason"], "too_few", "{line}"),
            "launch and wait" | "allocate and free, by the mediator" => {
                let timed = single["operations"].as_u64() >= Some(100);
                assert!(timed || single["reason"] == "too_long", "{line}");
            }
            _ => {}
        }
    }
    for side in ["guest", "native"] {
        let samples = alone[side]["samples_ns"].as_array().map(Vec::len);
        assert_eq!(samples, Some(2), "of the {side} alone: {line}");
    }
    let ratios = [
        &alone["guest_over_native"]["median"],
        &line["guest_over_native"]["median"],
    ];
    let [alone_ratio, in_turn] = ratios.map(|ratio| ratio.as_f64().unwrap());
    assert_eq!(
        line["quoted"]["median"].as_f64(),
        Some(alone_ratio.max(in_turn)),
        "{line}"
    );
    if line["path"] == "data" {
        assert_eq!(alone["exits"]["user_space_per_operation"], 0.0, "{line}");
    }
    let exits = &line["exits"];
    let per_operation = &exits["user_space_per_operation"];
    assert_eq!(
        per_operation, &exits["user_space_per_operation_by_vmm"],
        "the two counters agree: {line}"
    );
    match line["path"].as_str() {
        Some("data") => assert_eq!(per_operation, 0.0, "{line}"),
        Some("control") => assert!(per_operation.as_f64().unwrap() > 0.0, "{line}"),
        path => panic!("{path:?}: {line}"),
    }
}

#[test]
fn mechanisms_are_measured_in_turn_and_alone() {
    if !kvm("bench exits on a GPU") {
        return;
    }
    let machine = Machine::new();
    let _alone = alone();
    let words = [
        "bench",
        "exits",
        "--quick",
        "--gpu",
        "cuda",
        "--repetitions",
        "2",
    ];
    let rest = [
        "--only",
        "launch-and-wait",
        "--json",
        "e.json",
        "--html",
        "e.html",
    ];
    let running = machine.start(&[&words[..], &rest].concat());
    let vmm = running.id();
    let outcome = running.finish();
    outcome.assert_passed();
    let report = machine.json("e.json");
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4, "{report}");
    for cell in cells {
        let samples = cell["alone"]["time"]["samples_ns"].as_array();
        assert_eq!(samples.map(Vec::len), Some(2), "{cell}");
        let median = |of: &Value| of["median"].as_f64();
        let (alone, in_turn) = (
            median(&cell["alone"]["over_native"]),
            median(&cell["over_native"]),
        );
        let greater = alone
            .zip(in_turn)
            .map(|(alone, in_turn)| alone.max(in_turn));
        assert_eq!(greater.is_none(), cell["mechanism"] == "native", "{cell}");
        assert_eq!(median(&cell["quoted"]), greater, "{cell}");
    }
    assert!(outcome.stdout.contains("less favourable"), "{outcome:?}");
    check_contexts(&machine.contexts(), vmm);
}

#[test]
fn one_line_can_be_had_alone_and_on_the_hosts_cores_too() {
    if !kvm("bench gpu on the host's cores") {
        return;
    }
    let scratch = Scratch::new();
    let words = [
        "bench",
        "gpu",
        "--gpu",
        "software",
        "--repetitions",
        "3",
        "--json",
        "-",
    ];
    let outcome = scratch.run(&[&words[..], &["--only", "launches, pipelined"]].concat());
    outcome.assert_passed();
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let [line] = &report["lines"].as_array().unwrap()[..] else {
        panic!("one line: {report}");
    };
    assert_eq!(line["line"], "launches, pipelined");
    assert_eq!(line["guest"]["samples_ns"].as_array().unwrap().len(), 3);
    for absent in ["native", "alone", "quoted"] {
        assert!(line[absent].is_null(), "{line}");
    }
    assert!(
        outcome.stderr.contains("only the guest is timed"),
        "{outcome:?}"
    );
}

#[test]
fn a_line_that_is_none_is_refused_with_those_that_are() {
    let outcome = Machine::new().run(&["bench", "gpu", "--only", "nothing"]);
    let names = LINES.iter().map(|line| line.name());
    let parts: Vec<&str> = ["invalid value nothing for --only"]
        .into_iter()
        .chain(names)
        .collect();
    outcome.assert_refused(2, &parts);
}

#[test]
fn lives_leave_nothing_although_some_are_cut_short() {
    if !kvm("bench lives") {
        return;
    }
    let _alone = alone();
    for gpu in ["cuda,memory=128", "software"] {
        let machine = Machine::new();
        let words = [
            "bench", "lives", "--count", "12", "--kill", "4", "--mib", "16",
        ];
        let rest = ["--kill-within-ms", "20", "--json", "l.json", "--gpu", gpu];
        let words = [&words[..], &rest].concat();
        let outcome = machine.run(&words);
        outcome.assert_passed();
        let report = machine.json("l.json");
        assert_origin(&report, &words);
        assert_eq!(report["schema"], "causeway.bench-lives/1");
        schema::assert_valid(&report);
        assert_eq!(
            (&report["lives"], &report["failed"]),
            (&12.into(), &0.into())
        );
        let killed = report["killed"].as_u64().unwrap();
        let too_late = report["ended_before_the_kill"].as_u64().unwrap();
        // One that came too late is made up for, as long as there are lives to come.
        assert!(
            (1..=4).contains(&killed) && killed + too_late >= 4,
            "{report}"
        );
        assert!(outcome.stdout.contains("-> PASS"), "{outcome:?}");
        let memory = report["free_gpu_bytes"].as_array();
        assert_eq!(memory.is_some(), gpu != "software", "{report}");
        if let Some(memory) = memory {
            assert_eq!(memory[0], memory[1], "{report}");
        }
        assert_eq!(machine.used_bytes(), 0);
    }
}

#[test]
fn two_lives_are_enough_for_the_usual_kills() {
    if !kvm("bench lives") {
        return;
    }
    let machine = Machine::new();
    let words = [
        "bench", "lives", "--count", "2", "--mib", "16M", "--gpu", "software",
    ];
    machine
        .run(&[&words[..], &["--json", "l.json"]].concat())
        .assert_passed();
    let report = machine.json("l.json");
    let count = |field: &str| report[field].as_u64().unwrap();
    assert_eq!(count("lives"), 2);
    assert!(
        count("killed") + count("ended_before_the_kill") >= 1,
        "{report}"
    );
}

#[test]
fn lives_that_a_signal_ends_are_reported_as_far_as_they_came() {
    if !kvm("bench lives, interrupted") {
        return;
    }
    let scratch = Scratch::new();
    let words = [
        "bench", "lives", "--count", "1000", "--kill", "1000", "--mib", "16",
    ];
    let rest = [
        "--kill-within-ms",
        "20",
        "--json",
        "l.json",
        "--gpu",
        "software",
    ];
    let running = scratch.start(&[&words[..], &rest].concat());
    // The first life is not counted; a few more take place meanwhile.
    std::thread::sleep(Duration::from_secs(2));
    running.signal(Signal::HUP);
    let outcome = running.finish();
    assert_eq!(outcome.code, 129, "{outcome:?}");
    let text = std::fs::read_to_string(scratch.path("l.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["signal"], &report["passed"]),
        (&1.into(), &false.into())
    );
    let ended = report["ended"].as_u64().unwrap();
    assert!(ended < 1000, "{report}");
    let killed = report["killed"].as_u64().unwrap();
    let too_late = report["ended_before_the_kill"].as_u64().unwrap();
    assert_eq!(killed + too_late, ended, "{report}");
}

#[test]
fn more_kills_than_lives_are_refused() {
    let words = ["bench", "lives", "--count", "3", "--kill", "4"];
    let outcome = Machine::new().run(&words);
    outcome.assert_refused(2, &["invalid value 4 for --kill", "--count"]);
}
