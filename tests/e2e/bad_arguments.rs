//! Bad arguments: each is refused at once, with its value and the way out. None of these needs KVM.

use std::time::Duration;

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
        (["--timeout", "0"], "invalid value 0 for --timeout: "),
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
        ("--memory", "-5"),
        ("--memory", "18446744073709551616"),
        ("--vcpus", "1.5"),
        ("--vms", ""),
        ("--timeout", "soon"),
    ] {
        let scratch = Scratch::new();
        let outcome = scratch.run(&["run", &format!("{option}={value}")]);
        outcome.assert_refused(USAGE, &[option, &format!("'{value}'")]);
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
        .run(&["run", "--arguments", &"x".repeat(10_000)])
        .assert_refused(USAGE, &["arguments", "10000 bytes", "at most"]);
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
    let outcome = scratch.run(&["--help"]);
    for code in [
        "0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 ", "10 ",
    ] {
        assert!(
            outcome.stdout.contains(&format!(" {code} ")),
            "{code}: {outcome:?}"
        );
    }
    assert!(outcome.stdout.contains("130, 143"), "{outcome:?}");
}
