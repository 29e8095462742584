//! The keeper of what serves a disk: when it ends the daemon, and what a daemon can open. Shells
//! stand for daemons.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::Scratch;

/// How long a daemon may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// A daemon that says when it begins, and when it was asked to end. It ends a while later.
const DAEMON: &str = "trap 'sleep 0.3; echo ended > said; exit 0' TERM; echo begun > said
    while :; do sleep 0.05; done";

fn start(scratch: &Scratch, options: &[&str], script: &str) -> Child {
    let keeper = Command::new(env!("CARGO_BIN_EXE_causeway"))
        .arg("disk-keeper")
        .args(options)
        .args(["--", "/bin/sh", "-c", script])
        .current_dir(scratch.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    keeper.unwrap()
}

fn await_words(path: &Path, words: &str) {
    let begun = Instant::now();
    while fs::read_to_string(path).unwrap_or_default() != words {
        assert!(begun.elapsed() < PATIENCE, "{words:?} is never said");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_daemon_is_asked_to_end_when_nobody_reads_its_keepers_output_and_waited_for() {
    let scratch = Scratch::new();
    let said = scratch.path("said");
    let mut keeper = start(&scratch, &["--sandbox", "off"], DAEMON);
    await_words(&said, "begun\n");
    assert!(keeper.try_wait().unwrap().is_none());
    drop(keeper.stdout.take());
    assert!(keeper.wait().unwrap().success());
    await_words(&said, "ended\n");
}

#[test]
fn a_daemon_is_asked_to_end_when_its_keeper_is_killed() {
    let scratch = Scratch::new();
    let said = scratch.path("said");
    let mut keeper = start(&scratch, &["--sandbox", "off"], DAEMON);
    await_words(&said, "begun\n");
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    await_words(&said, "ended\n");
}

#[test]
fn a_confined_daemon_opens_its_own_files_only_and_starts_nothing() {
    const SCRIPT: &str = "
        read -r line < image && echo changed > image || { echo image; exit 1; }
        read -r line < backing || { echo backing; exit 1; }
        if read -r line < other; then echo other is read; exit 1; fi
        if echo x > backing; then echo backing is written; exit 1; fi
        if echo x > new; then echo a file is made; exit 1; fi
        if /usr/bin/env true; then echo a program is started; exit 1; fi
        exit 0";
    let scratch = Scratch::new();
    let [image, backing, other] = ["image", "backing", "other"].map(|name| {
        let path = scratch.path(name);
        fs::write(&path, "content\n").unwrap();
        path
    });
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let words = [
        "--sandbox",
        "on",
        "--writable",
        &text(&image),
        "--read-only",
        &text(&backing),
    ];
    let keeper = start(&scratch, &words, &format!("exec 2>/dev/null\n{SCRIPT}"));
    let ended = keeper.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let contents = [image, backing, other].map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(contents, ["changed\n", "content\n", "content\n"]);
}
