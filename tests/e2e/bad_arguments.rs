//! Bad arguments: each is refused at once, with its value and the way out. None of these needs KVM.

use std::time::Duration;

use crate::bare_images::{elf, exit, kernel};
use crate::command::Scratch;

const USAGE: i32 = 2;
const REPORT: i32 = 7;

#[test]
fn values_out_of_range_are_refused_with_their_range() {
    for (words, named) in [
        (["--memory", "0"], "invalid value 0 for --memory: "),
        (["--memory", "1"], "invalid value 1 for --memory: "),
        (
            ["--memory", "1000000000"],
            "invalid value 1000000000 for --memory: ",
        ),
        (["--vcpus", "0"], "invalid value 0 for --vcpus: "),
        (["--vcpus", "100000"], "invalid value 100000 for --vcpus: "),
        (["--vms", "0"], "invalid value 0 for --vms: "),
        (["--vms", "100000"], "invalid value 100000 for --vms: "),
        (["--vcpus", "-1"], "invalid value -1 for --vcpus: "),
        (["--timeout", "-1"], "invalid value -1 for --timeout: "),
        (
            ["--memory", "200T"],
            "invalid value 209715200 for --memory: ",
        ),
    ] {
        let scratch = Scratch::new();
        let outcome = scratch.run(&["run", words[0], words[1]]);
        outcome.assert_refused(USAGE, &[named, " to "]);
        assert!(outcome.duration < Duration::from_secs(5), "{outcome:?}");
    }
}

#[test]
fn values_that_are_no_numbers_are_refused() {
    for (option, value) in [
        ("--memory", "lots"),
        ("--memory", "4GB"),
        ("--memory", "-4G"),
        ("--memory", "-5"),
        ("--memory", "18446744073709551616"),
        ("--vcpus", "1.5"),
        ("--vms", ""),
        ("--timeout", "soon"),
    ] {
        let scratch = Scratch::new();
        let outcome = scratch.run(&["run", &format!("{option}={value}")]);
        let value = if value.is_empty() { "``" } else { value };
        let line = format!("causeway: invalid value {value} for {option}: choose ");
        outcome.assert_refused(USAGE, &[&line]);
    }
}

#[test]
fn a_back_end_or_key_that_is_not_known_is_refused_with_those_that_are() {
    for (gpu, named) in [
        ("", "software"),
        ("hardware", "`hardware`"),
        ("software,colour=red", "`colour`"),
        ("software,memory", "`memory`"),
        ("software,memory=", "invalid value `` for --gpu memory"),
        ("software,memory=0", "invalid value 0 for --gpu memory"),
        ("software,memory=64MB", "invalid value 64MB"),
        (
            "software,memory=999999999999999999999",
            "invalid value 999999999999999999999",
        ),
        ("software,queues=0", "invalid value 0 for --gpu queues"),
        ("software,memory=1,memory=2", "the key `memory` twice"),
        ("software,", "``"),
        ("vfio", "vfio:0000:00:03.0"),
        ("vfio:3,bar=2", "a PCI device such as"),
        ("vfio:0000:00:03.0,bar=6", "invalid value 6 for --gpu bar"),
        (
            "vfio:0000:00:03.0,isolation=process",
            "value process for --gpu isolation",
        ),
    ] {
        let scratch = Scratch::new();
        scratch
            .run(&["run", "--gpu", gpu])
            .assert_refused(USAGE, &["--gpu", named]);
    }
}

#[test]
fn a_guest_that_is_not_built_in_is_refused_with_those_that_are() {
    let scratch = Scratch::new();
    let outcome = scratch.run(&["run", "--guest", "nobody"]);
    outcome.assert_refused(
        USAGE,
        &[
            "nobody for --guest",
            "compute",
            "stream",
            "sharing",
            "hostile",
        ],
    );
}

#[test]
fn options_that_contradict_each_other_or_do_not_exist_are_refused() {
    let scratch = Scratch::new();
    scratch
        .run(&["run", "--guest", "compute", "--kernel", "x"])
        .assert_refused(USAGE, &["--kernel", "--guest"]);
    scratch
        .run(&["run", "--speed", "11"])
        .assert_refused(USAGE, &["--speed"]);
    scratch.run(&["walk"]).assert_refused(USAGE, &["walk"]);
    scratch
        .run(&[
            "run",
            "--guest",
            "residue",
            "--arguments",
            &"x".repeat(10_000),
        ])
        .assert_refused(USAGE, &["arguments", "10000 bytes", "at most"]);
}

/// Some pairs for real; `causeway_run::applicable` has the test of all.
#[test]
fn options_without_effect_are_refused() {
    let scratch = Scratch::new();
    scratch.file("bare", &elf(&exit(0)));
    scratch.file("kernel", &kernel(1 << 20));
    for (words, parts) in [
        (
            &["--guest", "stream", "--program", "x"][..],
            ["--program", "stream"],
        ),
        (
            &["--guest", "stream", "--initramfs", "x"],
            ["--initramfs", "stream"],
        ),
        (&["--append", "quiet"], ["--append", "compute"]),
        (&["--boot", "pvh"], ["--boot", "compute"]),
        (
            &["--arguments", "x=1"],
            ["--arguments", "compute, which takes none"],
        ),
        (
            &["--guest", "compute", "--module", "x.ko"],
            ["--module", "--program"],
        ),
        (
            &["--kernel", "bare", "--initramfs", "x"],
            ["--initramfs", "bare"],
        ),
        (
            &["--kernel", "kernel", "--arguments", "x"],
            ["--arguments", "--append"],
        ),
        (
            &["--kernel", "kernel", "--", "x"],
            ["-- ARGUMENTS", "--program"],
        ),
        (
            &["--kernel", "kernel", "--guest", "compute"],
            ["--kernel", "--guest"],
        ),
        (
            &["--json", "a", "--metrics-socket", "a"],
            ["--json", "--metrics-socket"],
        ),
    ] {
        scratch
            .run(&[&["run"][..], words].concat())
            .assert_refused(USAGE, &parts);
    }
}

/// Options of the other subcommands that have no effect together.
#[test]
fn pairs_that_other_commands_do_not_take_are_refused() {
    let scratch = Scratch::new();
    for (words, parts) in [
        (&["stat", "1", "--all"][..], ["PID", "--all"]),
        (&["stat", "1", "--count", "2"], ["--json", "missing"]),
        (
            &["stat", "--all", "--json", "--once", "--count", "2"],
            ["--once", "--count"],
        ),
        (
            &["stat", "--all", "--json", "--once", "--interval-ms", "50"],
            ["--once", "--interval-ms"],
        ),
        (
            &["bench", "exits", "--compare", "a", "b", "--quick"],
            ["--compare", "--quick"],
        ),
        (
            &["bench", "exits", "--compare", "a"],
            ["--compare", "2 values"],
        ),
        (
            &["bench", "exits", "--json", "-", "--csv", "-"],
            ["--json and --csv", "output"],
        ),
        (
            &["bench", "exits", "--csv", "a", "--html", "a"],
            ["--csv and --html", " a:"],
        ),
        (
            &["bench", "lives", "--count", "3", "--kill", "4"],
            ["--kill", "--count"],
        ),
        (
            &["serve", "--socket", "a", "--metrics-socket", "a"],
            ["--socket", "--metrics-socket"],
        ),
        (
            &["serve", "--socket", "a", "--spare-workers", "1"],
            ["1 for --spare-workers", "isolation=process"],
        ),
        (&["initramfs", "--program", "a"], ["--output", "missing"]),
        (&["doctor", "--all"], ["--all", "causeway doctor --help"]),
    ] {
        scratch.run(words).assert_refused(USAGE, &parts);
    }
}

#[test]
fn file_names_are_escaped_in_messages() {
    let scratch = Scratch::new();
    let name = "a\nb\x1b[31mc";
    for (words, code) in [
        (["run", "--kernel", name], 4),
        (["run", "--json", "nowhere/a\nb\x1b[31mc"], REPORT),
        (["run", "--disk", name], USAGE),
        (["run", "--gpu", name], USAGE),
        (["run", name, "--small-pages"], USAGE),
    ] {
        let outcome = scratch.run(&words);
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        assert!(!outcome.stderr.contains('\x1b'), "{outcome:?}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    let directory = scratch.path("directory");
    std::fs::create_dir(&directory).unwrap();
    let file = scratch.file("file", b"");
    for path in [
        "/nonexistent/report.json",
        directory.to_str().unwrap(),
        &format!("{file}/report.json"),
        "/proc/report.json",
    ] {
        let outcome = scratch.run(&["run", "--json", path]);
        outcome.assert_refused(REPORT, &[path]);
        assert!(outcome.duration < Duration::from_secs(5), "{outcome:?}");
    }
}

#[test]
fn help_names_every_option_and_every_exit_code() {
    let scratch = Scratch::new();
    let outcome = scratch.run(&["run", "--help"]);
    assert_eq!(outcome.code, 0);
    for option in [
        "--guest",
        "--kernel",
        "--vcpus",
        "--memory",
        "--gpu",
        "--vms",
        "--timeout",
        "--json",
        "--require-zero-exits",
    ] {
        assert!(outcome.stdout.contains(option), "{option}: {outcome:?}");
    }
    for part in ["compute: runs", "Guests for tests", "spin: never ends"] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome:?}");
    }
    let outcome = scratch.run(&["--help"]);
    for code in [
        "0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 ", "10 ",
    ] {
        assert!(
            outcome.stdout.contains(&format!(" {code} ")),
            "{code}: {outcome:?}"
        );
    }
    assert!(outcome.stdout.contains("129, 130, 141, 143"), "{outcome:?}");
}
