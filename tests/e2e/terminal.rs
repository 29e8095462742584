//! What a terminal shows while a run takes its time, and that it is left as it was.

use std::fs::File;
use std::io::Read;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;

use crate::command::{Scratch, kvm};

#[test]
fn progress_is_shown_and_cleared_and_the_terminal_is_left_as_it_was() {
    if !kvm("terminal") {
        return;
    }
    let scratch = Scratch::new();
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let terminal = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let before = format!("{:?}", tcgetattr(&terminal).unwrap());
    // Read while the command runs: it must not wait for room on the screen.
    let reader = std::thread::spawn(move || {
        let mut shown = Vec::new();
        // Ends with an error (EIO) when the last writer has closed the terminal.
        let _ = File::from(screen).read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    let end = || terminal.try_clone().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_causeway"))
        .args(["run", "--guest", "spin", "--timeout", "2"])
        .env("TERM", "xterm")
        .env("CAUSEWAY_RUNTIME_DIR", scratch.runtime_parent())
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    let status = child.wait().unwrap();
    let after = format!("{:?}", tcgetattr(&terminal).unwrap());
    drop(terminal);
    let shown = reader.join().unwrap();
    assert_eq!(status.code(), Some(6), "{shown}");
    assert_eq!(after, before);
    assert!(
        shown.contains("\x1b["),
        "no progress in two seconds: {shown:?}"
    );
    let cursor = (
        shown.matches("\x1b[?25l").count(),
        shown.matches("\x1b[?25h").count(),
    );
    assert_eq!(
        cursor.0 > 0,
        cursor.1 > 0,
        "the cursor stays hidden: {shown:?}"
    );
}
