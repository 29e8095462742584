//! A command that ends in the background of its terminal ends, and does not stop.
//!
//! Three processes: the test, the leader of a session on a terminal of its own, and a program in
//! that session. Each is a run of this file's tests; a variable of the environment says which.

use std::process::{Command, Stdio};

use causeway_terminal::{RawTerminal, undo_leftovers};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions, ioctl_tiocsctty, setpgid, setsid, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;

/// How the program restores the terminal.
const HOW: &str = "CAUSEWAY_TEST_RESTORES_BY";

/// Returns another run of this file, which runs only `test`.
fn another(test: &str, how: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(HOW, how);
    command.stdout(Stdio::null());
    command
}

/// Returns the settings of the terminal on standard input.
fn settings() -> String {
    format!("{:?}", tcgetattr(std::io::stdin()).unwrap())
}

#[test]
fn the_terminal_is_restored_from_the_background() {
    for how in ["drop", "last resort"] {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let terminal = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
        let mut leader = another("the_leader", how);
        let status = leader.stdin(Stdio::from(terminal)).status().unwrap();
        assert!(status.success(), "{how}");
    }
}

#[test]
fn the_leader() {
    let Ok(how) = std::env::var(HOW) else { return };
    setsid().unwrap();
    ioctl_tiocsctty(std::io::stdin()).unwrap();
    let before = settings();
    let mut program = another("the_program", &how).spawn().unwrap();
    let pid = Pid::from_child(&program);
    let news = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), news).unwrap().unwrap();
    if status.stopped() {
        program.kill().unwrap();
    }
    assert!(program.wait().unwrap().success(), "{status:?}");
    assert_eq!(settings(), before);
}

#[test]
fn the_program() {
    let Ok(how) = std::env::var(HOW) else { return };
    let before = settings();
    let raw = RawTerminal::enter().unwrap();
    assert_ne!(settings(), before);
    // Into a group of its own, while that of the leader has the foreground.
    setpgid(None, None).unwrap();
    if how == "drop" {
        return drop(raw);
    }
    undo_leftovers();
    std::mem::forget(raw);
}
