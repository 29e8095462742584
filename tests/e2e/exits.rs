//! `bench exits`: every workload by every mechanism, and what is said about it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Scratch, alone, kvm};

const USAGE: i32 = 2;
const REPORT: i32 = 7;
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
    let csv = std::fs::read_to_string(scratch.path("a.csv")).unwrap();
    let missing = report["missing"].as_array().unwrap();
    assert_eq!(csv.lines().count(), 1 + cells.len() + missing.len());
    assert!(csv.contains("insn_emulation=") || csv.contains("mmio_exits="));
    let page = std::fs::read_to_string(scratch.path("a.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 6);
    let compared = scratch.run(&["bench", "exits", "--compare", "a.json", "a.json"]);
    compared.assert_passed();
    for said in [" 0 changes beyond noise", "2 and 2 samples"] {
        assert!(compared.stdout.contains(said), "{compared:?}");
    }
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
    running.signal(Signal::INT);
    let outcome = running.finish();
    assert_eq!(outcome.code, INTERRUPTED, "{outcome:?}");
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
