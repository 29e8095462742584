//! `bench exits`: every workload by every mechanism, and what is said about it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::command::{Scratch, alone, kvm};
use crate::origin::assert_origin;
use crate::schema;

const CHANGED: i32 = 1;
const USAGE: i32 = 2;
const REPORT: i32 = 7;
const HUNG_UP: i32 = 129;
const INTERRUPTED: i32 = 130;

/// Runs it quickly on the software back end.
fn quick(scratch: &Scratch, words: &[&str]) -> crate::command::Outcome {
    let always = ["bench", "exits", "--quick", "--gpu", "software"];
    scratch.run(&[&always, words].concat())
}

fn report(scratch: &Scratch, name: &str) -> Value {
    let text = std::fs::read_to_string(scratch.path(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A figure of the exits of each cell by a mechanism, with the workload's name.
fn exits(report: &Value, mechanism: &str, figure: &str) -> Vec<(String, f64)> {
    let cells = report["cells"].as_array().unwrap().iter();
    let cells = cells.filter(|cell| cell["mechanism"] == mechanism);
    cells
        .map(|cell| {
            let name = cell["workload"].as_str().unwrap();
            (name.to_owned(), cell["exits"][figure].as_f64().unwrap())
        })
        .collect()
}

#[test]
fn every_workload_is_measured_by_every_mechanism_and_exits_as_often_as_it_must() {
    if !kvm("bench exits") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let files = ["--json", "a.json", "--csv", "a.csv", "--html", "a.html"];
    let outcome = quick(&scratch, &[&["--repetitions", "2"], &files[..]].concat());
    outcome.assert_passed();
    let report = report(&scratch, "a.json");
    assert_eq!(report["schema"], "causeway.bench-exits/1");
    schema::assert_valid(&report);
    assert_eq!(report["passed"], true);
    let figure = "user_space_per_operation";
    for (workload, count) in exits(&report, "mediated", figure) {
        let wanted = if workload == "allocate" { 2.0 } else { 0.0 };
        assert_eq!(count, wanted, "{workload}");
    }
    for (workload, count) in exits(&report, "trap", figure) {
        assert!(count >= 1.0, "{workload}: {count}");
    }
    let forwarded = exits(&report, "forward", figure);
    let launched = forwarded.iter().find(|(name, _)| name == "launch-and-wait");
    assert_eq!(launched.map(|(_, count)| *count), Some(1.0));
    for mechanism in ["mediated", "trap", "forward"] {
        if report["host"]["kvm"] != "unknown" {
            let by_kvm = exits(&report, mechanism, "user_space_per_operation_by_kvm");
            assert_eq!(exits(&report, mechanism, figure), by_kvm, "{mechanism}");
        }
    }
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(0));
    let cells = report["cells"].as_array().unwrap();
    assert!(cells.iter().any(|cell| cell["mechanism"] == "native"));
    assert!(
        cells
            .iter()
            .all(|cell| cell["time"]["median_ns"].as_f64() > Some(0.0))
    );
    check_singles(cells);
    assert!(outcome.stdout.contains("; the timer adds "), "{outcome:?}");
    let csv = std::fs::read_to_string(scratch.path("a.csv")).unwrap();
    let missing = report["missing"].as_array().unwrap();
    assert_eq!(csv.lines().count(), 1 + cells.len() + missing.len());
    assert!(csv.contains("insn_emulation=") || csv.contains("mmio_exits="));
    let page = std::fs::read_to_string(scratch.path("a.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 6);
    let always = ["bench", "exits", "--quick", "--gpu", "software"];
    assert_origin(
        &report,
        &[&always[..], &["--repetitions", "2"], &files[..]].concat(),
    );
    assert!(page.contains(report["time"].as_str().unwrap()), "no date");
    let compared = scratch.run(&["bench", "exits", "--compare", "a.json", "a.json"]);
    assert_eq!(compared.code, USAGE, "times of two samples: {compared:?}");
    for said in [" 0 changes beyond noise", "2 and 2 samples"] {
        assert!(compared.stdout.contains(said), "{compared:?}");
    }
    assert!(compared.stderr.contains("--repetitions"), "{compared:?}");
}

/// Asserts that each cell has a percentile of single operations or the reason why not.
fn check_singles(cells: &[Value]) {
    let mut timed = 0;
    for cell in cells {
        let single = &cell["single"];
        let reason = single["reason"].as_str();
        match cell["workload"].as_str().unwrap() {
            "store" | "load" => assert_eq!(reason, Some("in_loop"), "{cell}"),
            "submit" => assert_eq!(reason, Some("of_many"), "{cell}"),
            _ if reason.is_some() => {
                assert!(
                    ["too_short", "too_long"].contains(&reason.unwrap()),
                    "{cell}"
                );
            }
            _ => {
                let figure = |name: &str| single[name].as_f64().unwrap();
                assert!(figure("operations") >= 100.0, "{cell}");
                assert!(figure("timer_ns") < figure("median_ns"), "{cell}");
                assert!(figure("median_ns") <= figure("p99_ns"), "{cell}");
                assert!(figure("p99_ns") <= figure("slowest_ns"), "{cell}");
                timed += 1;
            }
        }
    }
    assert_ne!(timed, 0, "no single operations: {cells:?}");
    // A copy of 64 KiB by single words takes 8192 exits.
    let copies = cells
        .iter()
        .filter(|cell| cell["size"] == 65536 && cell["mechanism"] == "trap");
    let mut copies = copies.filter(|cell| cell["workload"] == "copy-out");
    assert_eq!(copies.next().unwrap()["single"]["reason"], "too_long");
}

/// A report of one cell whose samples took these times, in nanoseconds.
fn report_of(samples: &[f64]) -> Vec<u8> {
    let report = json!({
        "schema": "causeway.bench-exits/1",
        "causeway": "0.1.0",
        "revision": "0123456789ab",
        "time": "2026-01-31T23:59:59Z",
        "host": {"kvm": "svm", "kernel": "Linux 6.1", "cpu": "a processor", "cpus": 2},
        "backend": "software",
        "quick": true,
        "passed": true,
        "result": "passed",
        "cells": [{
            "workload": "copy-in",
            "size": 64,
            "mechanism": "mediated",
            "operations": 10,
            "time": {"median_ns": samples[0], "samples_ns": samples},
            "exits": {"user_space_per_operation": 0.0},
        }],
    });
    serde_json::to_vec(&report).unwrap()
}

#[test]
fn a_comparison_ends_as_its_verdict_says_and_writes_it() {
    let scratch = Scratch::new();
    scratch.file("before.json", &report_of(&[100.0; 6]));
    for (samples, code, verdict, changes) in [
        (&[100.0; 6][..], 0, "unchanged", 0),
        (&[200.0; 6], CHANGED, "changed", 1),
        (&[200.0; 5], USAGE, "not_comparable", 0),
    ] {
        scratch.file("after.json", &report_of(samples));
        let words = ["bench", "exits", "--compare", "before.json", "after.json"];
        let outcome = scratch.run(&[&words[..], &["--json", "c.json"]].concat());
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(
            outcome.stdout.contains(" changes beyond noise"),
            "{outcome:?}"
        );
        let written = report(&scratch, "c.json");
        assert_eq!(written["schema"], "causeway.bench-exits-compare/1");
        schema::assert_valid(&written);
        assert_eq!(written["verdict"], verdict, "{written}");
        assert_eq!(written["changes"].as_array().map(Vec::len), Some(changes));
        assert_eq!(written["before"]["revision"], "0123456789ab");
        assert_eq!(written["after"]["file"], "after.json");
        let outcome = scratch.run(&[&words[..], &["--json", "-"]].concat());
        let printed: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(printed["changes"], written["changes"]);
    }
    let change = json!({
        "workload": "copy-in", "size": 64, "mechanism": "mediated",
        "figure": "time", "before": 100.0, "after": 200.0,
    });
    scratch.file("after.json", &report_of(&[200.0; 6]));
    let words = ["bench", "exits", "--compare", "before.json", "after.json"];
    let outcome = scratch.run(&[&words[..], &["--json", "-"]].concat());
    let printed: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(printed["changes"], json!([change]));
    let outcome = scratch.run(&[&words[..], &["--quick"]].concat());
    outcome.assert_refused(USAGE, &["--compare", "--quick"]);
}

#[test]
fn without_a_choice_all_back_ends_of_the_machine_are_measured_and_the_other_is_named() {
    if !kvm("bench exits on all back ends") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let some = ["--only", "load", "--mechanism", "mediated,native"];
    let words = ["bench", "exits", "--quick", "--repetitions", "1"];
    let outcome = scratch.run(&[&words[..], &some, &["--json", "a.json"]].concat());
    outcome.assert_passed();
    let first = report(&scratch, "a.json");
    assert_eq!(first["gpu"], "software");
    let missing = first["missing"].as_array().unwrap();
    let says = |row: &Value| row["what"] == "everything on cuda" && row["reason"] != "";
    match scratch.path("a.cuda.json").exists() {
        true => assert_eq!(report(&scratch, "a.cuda.json")["gpu"], "cuda"),
        false => assert!(missing.iter().any(says), "{missing:?}"),
    }
}

#[test]
fn what_was_measured_before_the_end_is_kept() {
    if !kvm("bench exits, cut short") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let words = ["--repetitions", "200", "--timeout", "5", "--json", "a.json"];
    let outcome = quick(&scratch, &[&["--only", "matmul"], &words[..]].concat());
    assert_eq!(outcome.code, 6, "{outcome:?}");
    let report = report(&scratch, "a.json");
    assert_eq!(report["passed"], false);
    assert_ne!(report["cells"].as_array().unwrap().len(), 0);
    let outcome = scratch.run(&["bench", "exits", "--compare", "a.json", "a.json"]);
    outcome.assert_refused(USAGE, &["did not pass"]);
}

#[test]
fn a_run_that_is_interrupted_keeps_what_it_measured_and_names_the_rest() {
    if !kvm("bench exits, interrupted") {
        return;
    }
    let _alone = alone();
    for (signal, code) in [(Signal::INT, INTERRUPTED), (Signal::HUP, HUNG_UP)] {
        interrupted(signal, code);
    }
}

/// Ends a benchmark by a signal, and checks what it leaves.
fn interrupted(signal: Signal, code: i32) {
    let scratch = Scratch::new();
    let words = [
        "bench",
        "exits",
        "--quick",
        "--gpu",
        "software",
        "--repetitions",
        "200",
        "--only",
        "load,matmul",
        "--json",
        "a.json",
        "--csv",
        "a.csv",
        "--html",
        "a.html",
    ];
    let running = scratch.start(&words);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !(running.stdout() + &running.stderr()).contains("samples begin") {
        assert!(Instant::now() < deadline, "{}", running.stderr());
        sleep(Duration::from_millis(5));
    }
    // The first sample takes less, and all of them much more.
    sleep(Duration::from_millis(500));
    running.signal(signal);
    let outcome = running.finish();
    assert_eq!(outcome.code, code, "{outcome:?}");
    let report = report(&scratch, "a.json");
    assert_eq!(report["passed"], false);
    assert_eq!(
        report["problems"].as_array().map(Vec::len),
        Some(0),
        "{report}"
    );
    let cells = report["cells"].as_array().unwrap();
    let samples = |cell: &Value| cell["samples"].as_u64().unwrap();
    assert!(cells.iter().any(|cell| samples(cell) != 0), "{report}");
    assert!(cells.iter().any(|cell| samples(cell) < 200), "{report}");
    for cell in cells.iter().filter(|cell| cell["mechanism"] != "native") {
        let counted = cell["exits"]["operations"].as_u64();
        let operations = cell["operations"].as_u64().unwrap();
        assert_eq!(counted, Some(samples(cell) * operations), "{cell}");
    }
    assert!(outcome.stdout.contains("guest: "), "{outcome:?}");
    assert!(scratch.names().contains("a.csv") && scratch.names().contains("a.html"));
}

#[test]
fn a_back_end_that_is_not_there_is_a_row_that_says_why() {
    let scratch = Scratch::new();
    let words = [
        "bench",
        "exits",
        "--gpu",
        "vfio:ffff:ff:1f.7",
        "--json",
        "a.json",
    ];
    let outcome = scratch.run(&words);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(
        outcome
            .stdout
            .contains("not measured: everything by trap: "),
        "{outcome:?}"
    );
    let report = report(&scratch, "a.json");
    assert_eq!(report["cells"].as_array().map(Vec::len), Some(0));
    assert_eq!(report["missing"].as_array().map(Vec::len), Some(4));
}

#[test]
fn comma_separated_values_go_to_standard_output_in_place_of_the_table() {
    if !kvm("values on standard output") {
        return;
    }
    let scratch = Scratch::new();
    let words = [
        "--only",
        "load",
        "--mechanism",
        "mediated",
        "--repetitions",
        "1",
        "--csv",
        "-",
    ];
    let outcome = quick(&scratch, &words);
    outcome.assert_passed();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        lines[0].starts_with("workload,size,unit,mechanism,"),
        "{outcome:?}"
    );
    assert!(
        lines[1..].iter().all(|line| line.contains(',')),
        "{outcome:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("load,")),
        "{outcome:?}"
    );
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new();
    for (words, code, named) in [
        (["--only", "nonsense"], USAGE, "launch-and-wait"),
        (
            ["--mechanism", "magic"],
            USAGE,
            "mediated, trap, forward, passthrough, native, native-bar",
        ),
        (["--repetitions", "201"], USAGE, "201"),
        (["--vfio", "edu"], USAGE, "lspci -D"),
        (["--csv", "nowhere/a.csv"], REPORT, "--csv"),
        (["--html", "nowhere/a.html"], REPORT, "--html"),
        (["--json", "nowhere/a.json"], REPORT, "--json"),
    ] {
        quick(&scratch, &words).assert_refused(code, &[named]);
    }
    let other = scratch.file(
        "b.json",
        b"{\"schema\": \"causeway.report/1\", \"cells\": []}",
    );
    let none = scratch.file("c.json", b"nonsense");
    for (file, named) in [(&other, "causeway.report/1"), (&none, "c.json")] {
        let outcome = scratch.run(&["bench", "exits", "--compare", file, file]);
        outcome.assert_refused(USAGE, &[named]);
    }
    let outcome = scratch.run(&["bench", "exits", "--compare", "d.json", "d.json"]);
    outcome.assert_refused(USAGE, &["d.json"]);
}
