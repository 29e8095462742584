//! Workers and VMMs that are killed, and what is back afterwards.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::command::{Running, alone, kvm};
use crate::standin::Machine;
use crate::workers::{await_output, kill_one_after_the_other, kill_with_workers, workers};

#[test]
fn a_guest_whose_worker_is_killed_resets_and_goes_on_and_the_other_notices_nothing() {
    if !kvm("killed worker on CUDA") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new();
    let words = ["run", "--guest", "lost", "--json", "report.json", "--vms"];
    let running = machine.start(&[&words[..], &["2", "--gpu", "cuda,memory=256"]].concat());
    await_output(&running, "computing", 2);
    kill_one_after_the_other(running);
    for vm in machine.json("report.json")["vms"].as_array().unwrap() {
        assert_eq!(vm["worker_restarts"], 1, "{vm}");
    }
}

#[test]
fn a_signal_ends_what_waits_for_a_driver_that_hangs() {
    if !kvm("a driver that hangs") {
        return;
    }
    for (words, code) in [
        (&["run", "--guest", "exits", "--gpu", "cuda"][..], 143),
        (
            &["run", "--guest", "exits", "--gpu", "cuda", "--vms", "2"],
            143,
        ),
        (&["serve", "--socket", "socket", "--gpu", "cuda"], 0),
        (&["cuda", "--gpu", "cuda", "--", "true"], 143),
    ] {
        // Longer than the command waits for a worker process.
        let machine = Machine::new().with("HANG", 200);
        let running = machine.start(words);
        let deadline = Instant::now() + Duration::from_secs(30);
        while workers(&running).is_empty() {
            assert!(Instant::now() < deadline, "{}", running.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
        running.signal(Signal::TERM);
        let outcome = running.finish();
        assert_eq!(outcome.code, code, "{words:?}: {outcome:?}");
    }
}

/// Memory that the guest takes in the tests below, and the device has.
const TAKEN: u64 = 160 << 20;
const CARD: u64 = 256 << 20;

/// Has a guest take most of the card's memory, again and again.
fn taker(machine: &Machine) -> Running {
    let words = ["run", "--guest", "residue", "--gpu", "cuda,memory=200"];
    let running = machine.start(&[&words[..], &["--arguments", "rounds=100000,mib=160"]].concat());
    let deadline = Instant::now() + Duration::from_secs(60);
    while machine.used_bytes() < TAKEN {
        assert!(Instant::now() < deadline, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    running
}

/// The same once: passes if the memory is there.
fn takes_it(machine: &Machine) -> i32 {
    let words = ["run", "--guest", "residue", "--gpu", "cuda,memory=200"];
    let outcome = machine.run(&[&words[..], &["--arguments", "rounds=1,mib=160"]].concat());
    outcome.code
}

#[test]
fn memory_comes_back_from_a_vmm_that_is_killed() {
    if !kvm("killed VMM on CUDA") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new().with("MEMORY", CARD);
    let running = taker(&machine);
    assert_eq!(takes_it(&machine), 1, "somebody else has the memory");
    kill_with_workers(&running);
    let outcome = running.finish();
    assert_eq!(outcome.code, -9, "{outcome:?}");
    assert_eq!(machine.used_bytes(), 0);
    assert_eq!(takes_it(&machine), 0, "the memory is back");
}

#[test]
fn memory_comes_back_from_a_run_that_is_ended_by_a_signal() {
    if !kvm("signal on CUDA") {
        return;
    }
    let _alone = alone();
    let machine = Machine::new().with("MEMORY", CARD);
    let running = taker(&machine);
    running.signal(Signal::TERM);
    let outcome = running.finish();
    assert_eq!(outcome.code, 143, "{outcome:?}");
    assert_eq!(machine.used_bytes(), 0);
    assert_eq!(takes_it(&machine), 0, "the memory is back");
}
