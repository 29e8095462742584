//! The live view on a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::command::{Running, Scratch, kvm};

use super::{PATIENCE, TERMINATED, end, start_exiting};

/// Leaves the screen that a full-screen program draws on (xterm's control sequences, DECRST 1049).
const SCREEN_LEFT: &str = "\x1b[?1049l";
/// Goes to where the number of the guest is that is shown in detail, below a table of two. Only
/// what changes is written.
const OTHER_NAME: &str = "\x1b[5;4H";
/// So much of what was shown last is told of a failure.
const SHOWN_BYTES: usize = 600;

/// A live view.
struct View {
    keyboard: File,
    terminal: OwnedFd,
    before: String,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl View {
    fn start(scratch: &Scratch, vm: &Running) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let path = ptsname(&screen, Vec::new()).unwrap();
        let terminal =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).unwrap();
        let keyboard = File::from(screen);
        let mut reader = keyboard.try_clone().unwrap();
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let seen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(bytes @ 1..) = reader.read(&mut piece) {
                seen.lock().unwrap().extend(&piece[..bytes]);
            }
        });
        let end = || terminal.try_clone().unwrap();
        let before = format!("{:?}", tcgetattr(&terminal).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_causeway"))
            .args(["stat", &vm.id().to_string(), "--interval-ms", "100"])
            .env("CAUSEWAY_RUNTIME_DIR", scratch.runtime_parent())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let view = Self {
            keyboard,
            terminal,
            before,
            shown,
            child,
        };
        view.wait_until("a view", |view| view.shows("EXITS/s") && view.shows("vm0"));
        view
    }

    fn shows(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).contains(text)
    }

    fn wait_until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !reached(self) {
            let shown = self.shown.lock().unwrap();
            let last = &shown[shown.len().saturating_sub(SHOWN_BYTES)..];
            let last = String::from_utf8_lossy(last);
            assert!(begun.elapsed() < PATIENCE, "no {what}: {last:?}");
            drop(shown);
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, and for the terminal to be as it was. Gives the exit code.
    fn finish(mut self) -> Option<i32> {
        let code = self.child.wait().unwrap().code();
        self.wait_until("terminal as it was", |view| {
            format!("{:?}", tcgetattr(&view.terminal).unwrap()) == view.before
        });
        if code.is_some() {
            self.wait_until("screen left", |view| view.shows(SCREEN_LEFT));
        }
        code
    }
}

#[test]
fn the_live_view_ends_with_a_key_and_leaves_the_terminal_as_it_was() {
    if !kvm("live view") {
        return;
    }
    let scratch = Scratch::new();
    let vm = start_exiting(&scratch, &["--vms", "2"]);
    let mut view = View::start(&scratch, &vm);
    view.wait_until("rate", |view| view.shows("io:unclaimed:stray"));
    assert!(!view.shows(OTHER_NAME));
    view.keyboard.write_all(b"\x1b[B").unwrap();
    view.wait_until("other guest in detail", |view| view.shows(OTHER_NAME));
    view.keyboard.write_all(b"q").unwrap();
    assert_eq!(view.finish(), Some(0));
    end(vm);
}

#[test]
fn the_live_view_leaves_the_terminal_as_it_was_when_it_is_ended_or_killed() {
    if !kvm("live view, ended") {
        return;
    }
    let scratch = Scratch::new();
    let vm = start_exiting(&scratch, &[]);
    for (signal, code) in [(Signal::TERM, Some(TERMINATED)), (Signal::KILL, None)] {
        let view = View::start(&scratch, &vm);
        kill_process(Pid::from_child(&view.child), signal).unwrap();
        assert_eq!(view.finish(), code);
    }
    end(vm);
}

#[test]
fn the_live_view_ends_with_what_it_shows_and_says_so() {
    if !kvm("live view to the end") {
        return;
    }
    let scratch = Scratch::new();
    let vm = start_exiting(&scratch, &[]);
    let view = View::start(&scratch, &vm);
    let told = format!("process {} has ended", vm.id());
    end(vm);
    view.wait_until("word of the end", |view| view.shows(&told));
    assert_eq!(view.finish(), Some(0));
}
