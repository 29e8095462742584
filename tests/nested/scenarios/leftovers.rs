//! What is left when runs are killed: nothing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Lease, Survey};

use crate::machines::{CAUSEWAY, REPORT, machine, shell};

/// SIGKILL.
pub const KILL: i32 = 9;
/// How long the machine may take to come to what is waited for, such as the end of what a killed
/// process leaves. The host may have much else to do.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// What the kernel may keep for itself between two surveys, in KiB: slabs, lists of free pages,
/// lazily freed mappings. It is much less than what guests have, whose memory is counted apart and
/// exactly, and it does not grow with their number.
const KERNEL_KIB: u64 = 96 << 10;

/// Waits until the machine is as it was, and says what is different if it never is. What there is
/// then is given back.
#[track_caller]
pub fn assert_nothing_left(machine: &Lease, before: &Survey) -> Survey {
    // What is left of a killed run's socket is removed by whoever looks.
    let look = ["stat", "--all", "--json", "--once"];
    machine.run(&Command::new(CAUSEWAY, &look)).assert_code(0);
    empty_report(machine);
    let begun = Instant::now();
    loop {
        let now = machine.survey();
        let same = now.processes == before.processes
            && now.files == before.files
            && now.sockets == before.sockets
            && now.shared_kib <= before.shared_kib
            && now.available_kib + KERNEL_KIB >= before.available_kib;
        if same {
            return now;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "before: {before:?}\nafter: {now:?}"
        );
        sleep(Duration::from_millis(200));
    }
}

/// Empties the report of the last run: its length varies, and its pages count as shared memory.
fn empty_report(machine: &Lease) {
    machine.run(&shell(&format!(": > {REPORT}"))).assert_code(0);
}

/// What there is when a first run has come and gone, which leaves what the kernel keeps from then
/// on, and nothing else.
#[track_caller]
pub fn after_a_first(machine: &Lease, run: impl FnOnce()) -> Survey {
    empty_report(machine);
    let before = machine.survey();
    run();
    let but_for_memory = Survey {
        available_kib: 0,
        ..before
    };
    assert_nothing_left(machine, &but_for_memory)
}

/// `causeway run` without a report, which would be left.
pub fn plain(words: &[&str]) -> Command {
    let words: Vec<&str> = ["run"].iter().chain(words).copied().collect();
    Command::new(CAUSEWAY, &words)
}

/// Starts a run, lets it work for a while, and kills its first process alone. What others had of it
/// may be there for some time yet.
#[track_caller]
pub fn kill_after(machine: &Lease, words: &[&str], milliseconds: u64) {
    let command = plain(words);
    let job = machine.start(&command);
    sleep(Duration::from_millis(milliseconds));
    machine.signal(job, KILL, false);
    let outcome = machine.finish(&command, job);
    // A short life may be over by then.
    assert!([-KILL, 0].contains(&outcome.code), "{}", outcome.text());
}

#[track_caller]
fn kills_leave_nothing(machine: &Lease, words: &[&str], lives_ms: &[u64]) {
    let before = after_a_first(machine, || kill_after(machine, words, 1000));
    for milliseconds in lives_ms {
        kill_after(machine, words, *milliseconds);
        assert_nothing_left(machine, &before);
    }
}

#[test]
fn a_run_that_is_killed_while_its_guest_works_leaves_nothing() {
    let Some(machine) = machine("killed run") else {
        return;
    };
    let stream = ["--guest", "stream"];
    kills_leave_nothing(&machine, &stream, &[40, 300, 700, 1500, 2600]);
}

#[test]
fn worker_processes_end_with_the_run_that_is_killed() {
    let Some(machine) = machine("killed run with workers") else {
        return;
    };
    let stream = [
        "--guest",
        "stream",
        "--vms",
        "2",
        "--gpu",
        "software,isolation=process",
    ];
    kills_leave_nothing(&machine, &stream, &[400, 1900]);
}
