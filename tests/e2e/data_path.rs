//! What a run says about the exits of its data path, and about those of a guest that marks no
//! phase.

use causeway_testdev_records::{Mark, PhasePath, Totals, begin_phase, end_phase, report_totals};
use serde_json::Value;

use crate::bare_images::{CRASH, SPIN, elf, exit, in_first_vm, print, repeat, store_loop, stores};
use crate::command::{Outcome, Scratch, kvm};
use crate::report::{self, Report};

const GUEST_FAILED: i32 = 1;
const CRASHED: i32 = 5;
const TIMEOUT: i32 = 6;
const DATA_PATH_EXITS: i32 = 10;

/// A phase of nine operations that runs `code`.
fn phase(path: PhasePath, name: &str, code: &[u8]) -> Vec<u8> {
    let totals = Totals {
        operations: 9,
        bytes: 72,
        doorbells: 0,
    };
    let begin = stores(begin_phase(path, name));
    let end = stores([end_phase()]);
    [&begin, code, &end, &stores(report_totals(totals))].concat()
}

fn loop_of_stores() -> Vec<u8> {
    store_loop(0x8_0000, 100_000)
}

/// Runs a guest of this code that ends with `value`.
fn run(scratch: &Scratch, code: &[u8], value: u32, words: &[&str]) -> (Outcome, Report) {
    let image = scratch.file("guest.elf", &elf(&[code, &exit(value)].concat()));
    let guest = ["--kernel", &image, "--memory", "64"];
    report::run(scratch, &[&guest, words].concat())
}

/// Asserts the two lines at the end of the table.
#[track_caller]
fn assert_last_lines(outcome: &Outcome, run: &str, data_path: &str) {
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let (_, last) = lines.split_at(lines.len().saturating_sub(2));
    assert_eq!(last, [run, data_path], "{outcome:?}");
}

#[test]
fn a_data_path_without_exits_is_called_so_and_passes_where_none_are_wanted() {
    if !kvm("a data path without exits") {
        return;
    }
    let scratch = Scratch::new();
    let printing = phase(PhasePath::Control, "printing", &print("abc"));
    let code = [
        printing,
        phase(PhasePath::Data, "stores", &loop_of_stores()),
    ]
    .concat();
    let (outcome, report) = run(&scratch, &code, 0, &["--require-zero-exits"]);
    outcome.assert_passed();
    report.assert_exit_free();
    report.phase("printing").assert_exits(0, 3);
    assert_eq!(report.phase("stores").operations(), 9);
    assert_last_lines(
        &outcome,
        "run: PASS (vm0: passed)",
        "data path: 9 operations, 0 exits (0 wanted): none",
    );
}

#[test]
fn exits_on_the_data_path_are_told_and_fail_the_run_only_where_none_are_wanted() {
    if !kvm("exits on the data path") {
        return;
    }
    let scratch = Scratch::new();
    let clean = phase(PhasePath::Data, "stores", &loop_of_stores());
    let code = [clean, phase(PhasePath::Data, "printing", &print("abc"))].concat();
    let data_path = "data path: 18 operations, 3 exits (0 wanted): SOME";
    let (outcome, report) = run(&scratch, &code, 0, &[]);
    outcome.assert_passed();
    assert_eq!(report.0["data_path"], "some");
    assert_eq!(report.0["data_path_exits"], 3);
    assert_last_lines(&outcome, "run: PASS (vm0: passed)", data_path);
    let named = "phase `printing` of the data path had exits: 3 (by the VMM's count: \
                 io:console:data 3)";
    assert!(outcome.stdout.contains(named), "{outcome:?}");

    let (outcome, report) = run(&scratch, &code, 0, &["--require-zero-exits"]);
    assert_eq!(outcome.code, DATA_PATH_EXITS, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    let reason = "the data path had exits: 3, but --require-zero-exits allows none";
    assert_last_lines(&outcome, &format!("run: FAIL ({reason})"), data_path);
    assert!(outcome.stderr.contains(reason), "{outcome:?}");
}

#[test]
fn a_guest_that_fails_is_not_taken_for_one_that_exits() {
    if !kvm("a failing guest without exits") {
        return;
    }
    let scratch = Scratch::new();
    let code = phase(PhasePath::Data, "stores", &loop_of_stores());
    let (outcome, report) = run(&scratch, &code, 7, &["--require-zero-exits"]);
    assert_eq!(outcome.code, GUEST_FAILED, "{outcome:?}");
    assert_eq!(report.0["data_path"], "none");
    assert_last_lines(
        &outcome,
        "run: FAIL (vm0: failed with code 7)",
        "data path: 9 operations, 0 exits (0 wanted): none",
    );
}

#[test]
fn a_guest_without_phases_shows_the_exits_of_its_life_by_reason() {
    if !kvm("a guest without phases") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, report) = run(&scratch, &print("hello\n"), 0, &[]);
    outcome.assert_passed();
    assert_eq!(report.0["data_path"], "unmarked");
    let unmarked = "data path: 0 operations, 0 exits (0 wanted): no data phase was marked";
    assert_last_lines(&outcome, "run: PASS (vm0: passed)", unmarked);
    assert!(
        row(&outcome, "io console").ends_with("VMM 6"),
        "{outcome:?}"
    );
    let mut lines = outcome.stdout.lines().map(str::trim_start);
    let has_phases = lines.any(|line| line.starts_with("phase "));
    assert!(!has_phases, "a table of no phases: {outcome:?}");
    assert_eq!(report.0["vms"][0]["program"], Value::Null);

    let (outcome, _) = run(&scratch, &print("hello\n"), 0, &["--require-zero-exits"]);
    assert_eq!(outcome.code, DATA_PATH_EXITS, "{outcome:?}");
    assert!(
        outcome.stderr.contains("no data phase was marked"),
        "{outcome:?}"
    );
}

/// Begins a phase of the data path, and does not end it.
fn open_phase(code: &[u8]) -> Vec<u8> {
    let begin = stores(begin_phase(PhasePath::Data, "left"));
    [&begin, code].concat()
}

#[test]
fn exits_of_a_phase_that_is_left_open_count_but_for_the_one_that_ends_the_vm() {
    if !kvm("a phase that is left open") {
        return;
    }
    let scratch = Scratch::new();
    let clean = open_phase(&loop_of_stores());
    let (outcome, report) = run(&scratch, &clean, 0, &["--require-zero-exits"]);
    outcome.assert_passed();
    assert_eq!(report.0["data_path"], "none");
    report.phase("left").assert_exits(0, 0);
    assert_eq!(report.phase("left").ended_by(), "exit");
    let noted = "phase `left` was open when the VM was ended by the guest";
    assert!(outcome.stdout.contains(noted), "{outcome:?}");

    let printing = open_phase(&print("abc"));
    let (outcome, report) = run(&scratch, &printing, 0, &["--require-zero-exits"]);
    assert_eq!(outcome.code, DATA_PATH_EXITS, "{outcome:?}");
    assert_eq!(report.0["data_path_exits"], 3);
    report.phase("left").assert_exits(0, 3);
}

#[test]
fn a_phase_that_a_crash_or_the_time_limit_ends_is_in_the_verdict() {
    if !kvm("a phase that ends with its VM") {
        return;
    }
    let scratch = Scratch::new();
    let code = open_phase(&[&print("ab")[..], &CRASH].concat());
    let (outcome, report) = run(&scratch, &code, 0, &[]);
    assert_eq!(outcome.code, CRASHED, "{outcome:?}");
    assert_eq!(report.0["data_path"], "some");
    assert_eq!(report.phase("left").ended_by(), "exit");
    assert_eq!(report.phase("left").vmm("io:"), 2);
    assert_eq!(report.phase("left").vmm("shutdown"), 0);

    for (printed, data_path) in [("", "none"), ("ab", "some")] {
        let code = open_phase(&[&print(printed)[..], &SPIN].concat());
        let (outcome, report) = run(&scratch, &code, 0, &["--timeout", "2"]);
        assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
        assert_eq!(report.0["data_path"], data_path, "{}", report.0);
        assert_eq!(report.phase("left").ended_by(), "host");
        report.phase("left").assert_exits(0, printed.len() as u64);
    }
}

#[test]
fn phases_that_were_refused_leave_the_verdict_open() {
    if !kvm("more phases than are counted") {
        return;
    }
    let scratch = Scratch::new();
    let marks = begin_phase(PhasePath::Data, "p").chain([end_phase()]);
    let code = [repeat(4096 + 4, &stores(marks)), print("abc")].concat();
    let (outcome, report) = run(&scratch, &code, 0, &["--require-zero-exits"]);
    assert_eq!(outcome.code, DATA_PATH_EXITS, "{outcome:?}");
    assert_eq!(report.0["data_path"], "incomplete");
    assert_eq!(report.0["vms"][0]["phases_refused"], 4);
    let lacks = "VM 0 marked 4 phases more than the 4096 that are counted";
    let reason = format!("{lacks}, but --require-zero-exits needs all data phases of all VMs");
    assert_last_lines(
        &outcome,
        &format!("run: FAIL ({reason})"),
        &format!("data path: 0 operations, 0 exits (0 wanted): INCOMPLETE ({lacks})"),
    );
}

#[test]
fn a_vm_that_marks_nothing_is_not_covered_by_one_that_does() {
    if !kvm("two VMs, one with phases") {
        return;
    }
    let scratch = Scratch::new();
    let image = in_first_vm(&phase(PhasePath::Data, "stores", &loop_of_stores()));
    let image = scratch.file("guest.elf", &elf(&image));
    let two = ["--kernel", &image, "--memory", "64", "--vms", "2"];
    let (outcome, report) = report::run(&scratch, &two);
    outcome.assert_passed();
    assert_eq!(report.0["data_path"], "incomplete");
    let of_vms = [0, 1].map(|vm| report.0["vms"][vm]["data_path"].as_str().unwrap());
    assert_eq!(of_vms, ["none", "unmarked"]);
    assert_last_lines(
        &outcome,
        "run: PASS (all 2 VMs passed)",
        "data path: 9 operations, 0 exits (0 wanted): INCOMPLETE (1 of 2 VMs marked no data phase)",
    );
    let (outcome, _) = report::run(&scratch, &[&two[..], &["--require-zero-exits"]].concat());
    assert_eq!(outcome.code, DATA_PATH_EXITS, "{outcome:?}");
    assert!(
        outcome.stderr.contains("1 of 2 VMs marked no data phase"),
        "{outcome:?}"
    );
}

#[test]
fn doorbells_are_those_of_the_host_whatever_the_guest_says() {
    if !kvm("doorbells of the guest's word") {
        return;
    }
    let scratch = Scratch::new();
    let claimed = Totals {
        operations: 1,
        bytes: 0,
        doorbells: 1000,
    };
    let begin = stores(begin_phase(PhasePath::Data, "claim"));
    let totals = stores(report_totals(claimed));
    let code = [begin, print("abc"), stores([end_phase()]), totals].concat();
    let (outcome, report) = run(&scratch, &code, 0, &[]);
    outcome.assert_passed();
    assert_eq!(report.0["data_path_exits"], 3);
    let phase = report.phase("claim");
    assert_eq!((phase.doorbells(), phase.kvm_doorbells()), (1000, 0));
}

/// The first process of a Linux guest makes these marks.
#[test]
fn the_exits_of_a_programs_life_stand_beside_those_of_the_vms() {
    if !kvm("a program's life") {
        return;
    }
    let scratch = Scratch::new();
    let mark = |mark: Mark| stores([mark.into()]);
    let code = [
        print("boot"),
        mark(Mark::ProgramBegin),
        print("program"),
        mark(Mark::ProgramEnd),
        print("end"),
    ]
    .concat();
    let (outcome, report) = run(&scratch, &code, 0, &[]);
    outcome.assert_passed();
    assert!(
        row(&outcome, "io console").ends_with("VMM 14 7"),
        "{outcome:?}"
    );
    report.program(0).assert_exits(0, 7);
    assert!(report.0["vms"][0]["program"]["duration_ns"].as_u64() > Some(0));

    // A program that turns its machine off has no end but the VM's.
    let code = [print("boot"), mark(Mark::ProgramBegin), print("program")].concat();
    let (outcome, report) = run(&scratch, &code, 0, &[]);
    outcome.assert_passed();
    report.program(0).assert_exits(0, 7 + 1);
}

/// The row of a table that begins with these words, with single blanks.
#[track_caller]
fn row(outcome: &Outcome, words: &str) -> String {
    let mut rows = outcome.stdout.lines().map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.join(" ")
    });
    let found = rows.find(|row| row.starts_with(words));
    found.unwrap_or_else(|| panic!("there is no `{words}`: {outcome:?}"))
}
