//! The command line as shells and readers of manual pages see it.

use std::collections::BTreeSet;

use crate::command::Scratch;

const REPORT: i32 = 7;
const USAGE: i32 = 2;
/// Subcommands of users. The others are started by the command itself.
const SUBCOMMANDS: [&str; 11] = [
    "run",
    "initramfs",
    "doctor",
    "stat",
    "limit",
    "control",
    "serve",
    "bench",
    "cuda",
    "completions",
    "man",
];

#[test]
fn shells_complete_every_subcommand_and_option() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = Scratch::new().run(&["completions", shell]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
        let script = &outcome.stdout;
        for word in SUBCOMMANDS
            .iter()
            .chain(&["metrics-any-address", "log-file"])
        {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        assert!(
            !script.contains("terminal-keeper"),
            "{shell}: not for users"
        );
    }
    let outcome = Scratch::new().run(&["completions", "cmd"]);
    outcome.assert_refused(USAGE, &["cmd", "bash", "zsh"]);
}

/// What bash proposes after these words, the last of which is not complete.
fn proposed(words: &[&str]) -> BTreeSet<String> {
    let scratch = Scratch::new();
    let script = scratch.run(&["completions", "bash"]).stdout;
    let path = scratch.file("completions.1", script.as_bytes());
    let asked = format!(
        "source {path}; COMP_WORDS=({}); COMP_CWORD={}; \
         _causeway causeway \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "-c", &asked]);
    let outcome = scratch.start_command(bash).finish();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    outcome.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_proposes_what_can_follow() {
    let all = proposed(&["causeway", "st"]);
    assert_eq!(all, BTreeSet::from(["stat".to_owned()]));
    let options = proposed(&["causeway", "run", "--metrics"]);
    let expected = ["--metrics", "--metrics-any-address", "--metrics-socket"];
    assert_eq!(options, expected.map(str::to_owned).into());
}

#[test]
fn manual_pages_are_those_of_all_subcommands_for_users() {
    let scratch = Scratch::new();
    let directory = scratch.path("man.1");
    let outcome = scratch.run(&["man", "man.1"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""));
    let names = std::fs::read_dir(&directory).unwrap();
    let names: BTreeSet<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let benches = ["bench-exits", "bench-gpu", "bench-lives", "bench-suite"];
    let expected = SUBCOMMANDS.iter().chain(&benches);
    let expected = expected.map(|name| format!("causeway-{name}.1"));
    let expected: BTreeSet<String> = expected.chain(["causeway.1".to_owned()]).collect();
    assert_eq!(names, expected);
    let page = std::fs::read_to_string(directory.join("causeway-run.1")).unwrap();
    for part in [
        ".TH causeway-run 1",
        ".SH SYNOPSIS",
        "\\-\\-metrics",
        "\\-\\-vcpus",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let page = std::fs::read_to_string(directory.join("causeway.1")).unwrap();
    assert!(page.contains("Exit codes"), "{page}");
    // Written again, and where nothing can be written.
    assert_eq!(scratch.run(&["man", "man.1"]).code, 0);
    let file = scratch.file("file", b"");
    let outcome = scratch.run(&["man", &file]);
    outcome.assert_refused(REPORT, &[&file, "directory"]);
}
