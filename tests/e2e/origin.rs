//! What every report says of its making: time, command line, build, duration and load.

use std::process::Command;

use serde_json::{Value, json};

use crate::bare_images::{elf, exit};
use crate::command::{Scratch, kvm};

/// Asserts that a report names the command line `words`, and when, by which build and beside which
/// load it was made.
#[track_caller]
pub fn assert_origin(report: &Value, words: &[&str]) {
    assert_eq!(report["command"], json!(words));
    let time = report["time"].as_str().unwrap();
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert_eq!(shape, "0000-00-00T00:00:00Z", "{time}");
    assert!(report["duration_s"].as_f64() > Some(0.0), "{report}");
    for load in ["load_at_start", "load_at_end"] {
        assert_eq!(report[load].as_array().map(Vec::len), Some(3), "{report}");
    }
    let host = report["host_name"].as_str().unwrap();
    assert!(!host.is_empty() && host != "unknown", "{report}");
    assert_eq!(report["revision"], revision());
}

/// The revision that `--version` shows behind the version.
fn revision() -> String {
    let outcome = Scratch::new().run(&["--version"]);
    outcome.assert_passed();
    let version = concat!("causeway ", env!("CARGO_PKG_VERSION"), " (");
    let line = outcome.stdout.strip_prefix(version);
    let revision = line.and_then(|line| line.strip_suffix(")\n"));
    revision.unwrap_or_else(|| panic!("{outcome:?}")).to_owned()
}

#[test]
fn the_version_has_the_revision_from_which_the_command_was_built() {
    let head = Command::new("git")
        .args([
            "-C",
            env!("CARGO_MANIFEST_DIR"),
            "rev-parse",
            "--short=12",
            "HEAD",
        ])
        .output();
    let head = head.ok().filter(|output| output.status.success());
    let head = head.map(|output| String::from_utf8(output.stdout).unwrap());
    match head {
        Some(head) => assert!(
            revision().contains(head.trim()),
            "{head}, not {}",
            revision()
        ),
        None => assert_eq!(revision(), "unknown"),
    }
}

#[test]
fn the_report_of_a_run_says_where_it_comes_from() {
    if !kvm("origin of a report") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.file("guest.elf", &elf(&exit(0)));
    let words = ["run", "--kernel", &image, "--memory", "64", "--json", "-"];
    let outcome = scratch.run(&words);
    outcome.assert_passed();
    assert_origin(&serde_json::from_str(&outcome.stdout).unwrap(), &words);
}

/// A regular file, which the shell has opened.
#[test]
fn a_report_to_the_file_of_standard_output_arrives() {
    if !kvm("report to standard output") {
        return;
    }
    let outcome = Scratch::new().run(&["run", "--guest", "exits", "--json", "/dev/stdout"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["outcome"], "pass");
}
