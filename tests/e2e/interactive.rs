//! A terminal that is a Linux guest's: raw while the run lasts, and as it was whatever ends it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::bare_images::kernel;
use crate::command::{Scratch, kvm};

const PATIENCE: Duration = Duration::from_secs(60);

/// A run on a terminal of its own.
struct OnTerminal {
    keyboard: File,
    terminal: OwnedFd,
    before: String,
    child: Child,
    _scratch: Scratch,
}

impl OnTerminal {
    fn start() -> Self {
        let scratch = Scratch::new();
        let kernel = scratch.file("kernel", &kernel(4096));
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let path = ptsname(&screen, Vec::new()).unwrap();
        let terminal =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let keyboard = File::from(screen);
        let mut reader = keyboard.try_clone().unwrap();
        // The command must not wait for room on the screen.
        std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        let end = || terminal.try_clone().unwrap();
        let before = format!("{:?}", tcgetattr(&terminal).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_causeway"))
            .args(["run", "--timeout", "300", "--kernel"])
            .arg(&kernel)
            .env("CAUSEWAY_RUNTIME_DIR", scratch.runtime_parent())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let run = Self {
            keyboard,
            terminal,
            before,
            child,
            _scratch: scratch,
        };
        run.wait_until("raw", |run| {
            let modes = tcgetattr(&run.terminal).unwrap().local_modes;
            !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
        });
        run
    }

    fn wait_until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !reached(self) {
            assert!(begun.elapsed() < PATIENCE, "the terminal is not {what}");
            sleep(Duration::from_millis(10));
        }
    }

    fn wait_until_restored(&self) {
        self.wait_until("as it was", |run| {
            format!("{:?}", tcgetattr(&run.terminal).unwrap()) == run.before
        });
    }
}

#[test]
fn the_escape_ends_the_run_and_the_terminal_is_as_it_was() {
    if !kvm("escape") {
        return;
    }
    let mut run = OnTerminal::start();
    // Ctrl-C is the guest's; the guest does not read, and that must not be in the way.
    run.keyboard.write_all(&[3; 200]).unwrap();
    run.keyboard.write_all(b"\x01x").unwrap();
    let status = run.child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    run.wait_until_restored();
}

#[test]
fn a_run_that_is_killed_leaves_the_terminal_as_it_was() {
    if !kvm("killed at a terminal") {
        return;
    }
    let mut run = OnTerminal::start();
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    run.wait_until_restored();
}
