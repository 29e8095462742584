//! A person at the console of a Linux guest: what is typed, what is shown, and the terminal
//! afterwards.

use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Job, Lease, Outcome, Terminal};

use crate::leftovers::{KILL, PATIENCE, after_a_first, assert_nothing_left};
use crate::machines::{CAUSEWAY, KERNEL, install, machine, run};

/// Where an initramfs lies in the machine.
const INITRAMFS: &str = "/tmp/console.cpio";
const CTRL_A: &[u8] = b"\x01";
const CTRL_C: &[u8] = b"\x03";
const ESCAPE: &[u8] = b"\x01x";

#[test]
fn what_a_program_says_last_is_shown_whole() {
    let Some(machine) = machine("last words") else {
        return;
    };
    // Longer than the serial port's queue, and on a processor that does not send it.
    let lines: Vec<String> = (0..30)
        .map(|line| format!("{line} {}", "w".repeat(60)))
        .collect();
    let script = format!("echo '{}'", lines.join("\n"));
    let words = ["--kernel", KERNEL, "--program", "/bin/sh", "--vcpus", "2"];
    let (outcome, _) = run(&machine, &[&words[..], &["--", "-c", &script]].concat());
    outcome.assert_code(0);
    let shown = |line: &String| outcome.stderr.contains(&format!("vm0| {line}"));
    assert!(lines.iter().all(shown), "{}", outcome.text());
}

/// A run on a terminal, and somebody who types.
struct Person<'a> {
    machine: &'a Lease,
    command: Command,
    job: Job,
}

impl<'a> Person<'a> {
    /// Starts a run, and waits until the guest has the terminal.
    fn sits_down(machine: &'a Lease, words: &[&str]) -> Self {
        let command = Command::new(CAUSEWAY, &[&["run"], words].concat()).on_terminal();
        let job = machine.start(&command);
        let person = Self {
            machine,
            command,
            job,
        };
        person.wait_until("raw", |terminal| {
            !(terminal.now.lines || terminal.now.echo || terminal.now.signals)
        });
        person
    }

    fn types(&self, keys: &[u8]) {
        self.machine.type_keys(self.job, keys);
    }

    /// Waits until something is shown.
    #[track_caller]
    fn sees(&self, text: &str) {
        self.machine.wait_for_text(&self.command, self.job, text);
    }

    #[track_caller]
    fn wait_until(&self, what: &str, reached: impl Fn(&Terminal) -> bool) {
        let begun = Instant::now();
        loop {
            let terminal = self.machine.terminal(self.job);
            if reached(&terminal) {
                return;
            }
            let late = begun.elapsed() > PATIENCE;
            assert!(!late, "the terminal is not {what}: {terminal:?}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the terminal is as it was, and for the end of the run.
    #[track_caller]
    fn has_the_terminal_back(self) -> Outcome {
        self.wait_until("as it was", |terminal| terminal.now == terminal.before);
        self.machine.finish(&self.command, self.job)
    }
}

/// An initramfs whose program answers.
#[track_caller]
fn make_initramfs(machine: &Lease) {
    let program = install(machine, "console");
    let words = ["initramfs", "--program", &program, "--output", INITRAMFS];
    machine.run(&Command::new(CAUSEWAY, &words)).assert_code(0);
}

#[test]
fn what_a_person_types_reaches_the_guest_which_shows_it_and_turns_itself_off() {
    let Some(machine) = machine("a person at the console") else {
        return;
    };
    make_initramfs(&machine);
    let words = ["--kernel", KERNEL, "--initramfs", INITRAMFS];
    let person = Person::sits_down(&machine, &[&words[..], &["--append", "quiet"]].concat());
    person.sees("console: say something");
    // The first is shown by the guest's terminal, which has lines; ours shows nothing of itself.
    person.types(b"who is there\r");
    person.sees("who is there");
    person.sees("console: \"WHO IS THERE\"");
    person.types(b"wrong\x7f\x7f\x7f\x7f\x7fright\r");
    person.sees("console: \"RIGHT\"");
    person.types(CTRL_C);
    person.sees("console: Ctrl-C");
    person.types(&[CTRL_A, CTRL_A, b"k", CTRL_A, b"k\r"].concat());
    person.sees("console: \"\\u{1}K\\u{1}K\"");
    person.types(b"off\r");
    let outcome = person.has_the_terminal_back();
    outcome.assert_code(0);
    assert!(outcome.stdout.contains("turned off"), "{}", outcome.text());
    assert!(!outcome.outputs_held, "{}", outcome.text());
    let shown = outcome.stdout.matches("who is there").count();
    assert_eq!(shown, 1, "{}", outcome.text());
}

#[test]
fn the_escape_ends_a_run_and_whoever_is_killed_leaves_the_terminal_as_it_was() {
    let Some(machine) = machine("escapes from the console") else {
        return;
    };
    let early = |ends: &dyn Fn(&Person)| {
        let person = Person::sits_down(&machine, &["--kernel", KERNEL]);
        person.sees("Linux version");
        ends(&person);
        person.has_the_terminal_back()
    };
    let before = after_a_first(&machine, || {
        let outcome = early(&|person| person.types(ESCAPE));
        outcome.assert_code(130);
        assert!(!outcome.outputs_held, "{}", outcome.text());
    });
    early(&|person| machine.signal(person.job, KILL, false)).assert_code(-KILL);
    // Whoever gives the terminal back ends then.
    assert_nothing_left(&machine, &before);
}
