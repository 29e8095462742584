//! Control groups that bound the host memory of worker processes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_nested::{Command, Lease};

use crate::leftovers::{PATIENCE, kill_after};
use crate::machines::{CAUSEWAY, machine, refused, shell};

/// Two guests that compute until their device is lost, reset it, and compute once more.
const LOSERS: [&str; 10] = [
    "--guest",
    "lost",
    "--vms",
    "2",
    "--gpu",
    "software,memory=64,isolation=process",
    "--worker-cgroup",
    "/sys/fs/cgroup/workers",
    "--worker-memory",
    "192",
];

/// Returns the groups of workers that have a process, each as its folder, that process, and the
/// bytes that it may use.
fn groups(machine: &Lease) -> Vec<(String, String, String)> {
    let script = "for group in /sys/fs/cgroup/workers/causeway-*; do \
                    read process < $group/cgroup.procs && read most < $group/memory.max \
                    && echo $group $process $most; done 2>/dev/null; true";
    let outcome = machine.run(&shell(script));
    outcome.assert_code(0);
    let words = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?, words.next()?))
    };
    outcome.stdout.lines().filter_map(words).collect()
}

/// Waits for two groups with a process, and returns their folders.
#[track_caller]
fn await_two(machine: &Lease) -> [String; 2] {
    let begun = Instant::now();
    loop {
        let found = groups(machine);
        for (group, process, most) in &found {
            assert!(
                group.ends_with(&format!("-{process}")),
                "{group}: {process}"
            );
            assert_eq!(most, "201326592", "{group}");
        }
        let folders: Vec<_> = found.into_iter().map(|(group, ..)| group).collect();
        if let Ok(two) = folders.try_into() {
            return two;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", groups(machine));
        sleep(Duration::from_millis(100));
    }
}

/// Lowers the limit of a group, so that its worker needs more than it may have.
#[track_caller]
fn starve(machine: &Lease, group: &str) {
    let script = format!("echo 4096 > {group}/memory.max");
    machine.run(&shell(&script)).assert_code(0);
}

/// Returns what is in the folder for groups of workers.
fn left(machine: &Lease) -> String {
    machine
        .run(&shell("echo /sys/fs/cgroup/workers/causeway-*"))
        .stdout
}

#[test]
fn a_worker_that_needs_more_than_its_group_may_have_is_lost_alone() {
    let Some(machine) = machine("control groups") else {
        return;
    };
    let words = [&["run"], &LOSERS[..]].concat();
    let command = Command::new(CAUSEWAY, &words).limit(PATIENCE);
    let job = machine.start(&command);
    let [first, second] = await_two(&machine);
    for computes in ["vm0| computing", "vm1| computing"] {
        machine.wait_for_text(&command, job, computes);
    }
    starve(&machine, &first);
    // The rest of its life with another worker may be too short to be seen.
    machine.wait_for_text(&command, job, "| lost after");
    let alive = groups(&machine)
        .into_iter()
        .any(|(group, ..)| group == second);
    assert!(alive, "the neighbour has lost its worker, too");
    starve(&machine, &second);
    let outcome = machine.finish(&command, job);
    outcome.assert_code(0);
    let killed = outcome.stderr.matches("was killed by signal 9").count();
    assert!(killed >= 2, "{}", outcome.text());
    // The shell's pattern stands for itself if nothing matches.
    assert_eq!(left(&machine).trim(), "/sys/fs/cgroup/workers/causeway-*");
}

#[test]
fn groups_of_a_killed_vmm_are_removed_by_the_next_one() {
    let Some(machine) = machine("control groups of a killed run") else {
        return;
    };
    kill_after(&machine, &LOSERS, 3000);
    let stale = left(&machine);
    assert!(!stale.contains('*'), "nothing was left: {stale}");
    let next = [&["run", "--guest", "exits"], &LOSERS[4..]].concat();
    let outcome = machine.run(&Command::new(CAUSEWAY, &next));
    outcome.assert_code(0);
    assert_eq!(left(&machine).trim(), "/sys/fs/cgroup/workers/causeway-*");
}

#[test]
fn folders_that_cannot_be_divided_are_refused() {
    let Some(machine) = machine("no control group") else {
        return;
    };
    for (folder, said) in [
        ("/proc", "/proc is no folder"),
        ("/sys/fs/cgroup", "/sys/fs/cgroup is the root"),
    ] {
        let mut words = LOSERS.to_vec();
        words[7] = folder;
        refused(&machine, &words, 2, &["--worker-cgroup", said]);
    }
}
