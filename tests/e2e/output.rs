//! Outputs that nobody reads, that are full, or that are no ordinary files.

use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::command::{Scratch, kvm};

const REPORT: i32 = 7;

fn causeway(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.args(words).stdin(Stdio::null());
    command
}

/// A pipe whose reader has gone, as behind `| head -1`.
fn unread_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    if !kvm("closed pipes") {
        return;
    }
    for words in [
        &["run", "--guest", "exits"][..],
        &["run", "--guest", "exits", "--json", "-"],
    ] {
        let status = causeway(words).stdout(unread_pipe()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{words:?}");
    }
    // Guests print there, from the threads of their virtual CPUs.
    let mut all_closed = causeway(&["run", "--guest", "compute"]);
    all_closed.stdout(unread_pipe()).stderr(unread_pipe());
    assert_eq!(all_closed.status().unwrap().code(), Some(0));
}

#[test]
fn a_full_disk_under_standard_output_is_told() {
    if !kvm("full disk") {
        return;
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = causeway(&["run", "--guest", "exits"]);
    let output = command.stdout(full.unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(REPORT), "{said}");
    assert!(said.contains("standard output"), "{said}");
}

#[test]
fn what_is_no_regular_file_is_not_replaced_by_a_report() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe.json");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Nobody reads it, and nobody ever will: it is refused rather than waited for.
    let outcome = scratch.run(&["run", "--json", "pipe.json"]);
    outcome.assert_refused(REPORT, &["pipe.json"]);
    let kind = std::fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(kind.is_fifo(), "{kind:?}");
}
