//! What is left when runs are killed: nothing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Lease, Survey};

use crate::laboratory::{CAUSEWAY, machine};

/// SIGKILL.
const KILL: i32 = 9;
/// How long the kernel may take to end what a killed process leaves.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the kernel may keep for itself between two surveys, in KiB: slabs, lists of free pages, lazily freed mappings. It is
/// much less than what guests have, whose memory is counted apart and exactly, and it does not grow with their number.
const KERNEL_KIB: u64 = 96 << 10;

/// Waits until the machine is as it was, and says what is different if it never is.
#[track_caller]
pub fn assert_nothing_left(machine: &Lease, before: &Survey) {
    let begun = Instant::now();
    loop {
        let now = machine.survey();
        let same = now.processes == before.processes
            && now.files == before.files
            && now.sockets == before.sockets
            && now.shared_kib <= before.shared_kib
            && now.available_kib + KERNEL_KIB >= before.available_kib;
        if same {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "before: {before:?}\nafter: {now:?}"
        );
        sleep(Duration::from_millis(200));
    }
}

/// Starts a run, lets it work for a while, and kills its first process alone.
#[track_caller]
pub fn kill_after(machine: &Lease, words: &[&str], milliseconds: u64) {
    let words: Vec<&str> = ["run"].iter().chain(words).copied().collect();
    let command = Command::new(CAUSEWAY, &words);
    let job = machine.start(&command);
    sleep(Duration::from_millis(milliseconds));
    machine.signal(job, KILL, false);
    let outcome = machine.finish(&command, job);
    // A short life may be over by then.
    assert!([-KILL, 0].contains(&outcome.code), "{}", outcome.text());
    assert!(!outcome.outputs_held, "{}", outcome.text());
}

#[test]
fn a_run_that_is_killed_while_its_guest_works_leaves_nothing() {
    let Some(machine) = machine("killed run") else {
        return;
    };
    let stream = ["--guest", "stream"];
    // The first run leaves what the kernel keeps from then on.
    kill_after(&machine, &stream, 1000);
    let before = machine.survey();
    for milliseconds in [40, 300, 700, 1500, 2600] {
        kill_after(&machine, &stream, milliseconds);
        assert_nothing_left(&machine, &before);
    }
}

#[test]
fn worker_processes_end_with_the_run_that_is_killed() {
    let Some(machine) = machine("killed run with workers") else {
        return;
    };
    let sharing = [
        "--guest",
        "stream",
        "--vms",
        "2",
        "--gpu",
        "software,worker=process",
    ];
    kill_after(&machine, &sharing, 1000);
    let before = machine.survey();
    for milliseconds in [400, 1900] {
        kill_after(&machine, &sharing, milliseconds);
        assert_nothing_left(&machine, &before);
    }
}
