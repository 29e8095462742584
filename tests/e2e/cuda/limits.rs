//! Bytes and multiprocessors of each VM.

use crate::command::{Outcome, alone, kvm};
use crate::report::Report;
use crate::standin::Machine;

#[test]
fn a_guest_that_wants_more_memory_than_its_limit_is_refused() {
    if !kvm("a limit on memory") {
        return;
    }
    let words = ["--guest", "residue", "--arguments", "rounds=1,mib=48"];
    let run = |gpu| Machine::new().guests(&[&words[..], &["--gpu", gpu]].concat());
    run("cuda,memory=64MiB").0.assert_passed();
    let (outcome, report) = run("cuda,memory=40MiB");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    assert!(outcome.stderr.contains("memory quota"), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("the limits are 40 MiB of GPU memory"),
        "{outcome:?}"
    );
}

/// What a guest finds out about its multiprocessors.
struct Multiprocessors {
    /// Those that a kernel found itself on, which fills the whole card: a bit for each.
    seen: Vec<u32>,
    /// What the device says that it has.
    given: u32,
}

impl Multiprocessors {
    fn count(&self) -> u32 {
        self.seen.iter().map(|word| word.count_ones()).sum()
    }
}

/// Of each VM.
fn multiprocessors(gpu: &str, vms: usize) -> Vec<Multiprocessors> {
    let count = vms.to_string();
    let arguments = "repetitions=1,only=submit a launch";
    let words = [
        "--guest",
        "bench",
        "--arguments",
        arguments,
        "--vms",
        &count,
    ];
    let (outcome, report) = Machine::new().guests(&[&words[..], &["--gpu", gpu]].concat());
    outcome.assert_passed();
    let units = report.0["backend"]["compute_units"].as_u64().unwrap();
    let of = |vm: usize| {
        let given = figure(&report, vm, "multiprocessors of the device") as u32;
        assert_eq!(u64::from(given), units);
        let seen = map(&outcome, vm);
        let found = Multiprocessors { seen, given };
        let told = figure(&report, vm, "multiprocessors seen");
        assert_eq!(told, f64::from(found.count()));
        found
    };
    (0..vms).map(of).collect()
}

fn figure(report: &Report, vm: usize, name: &str) -> f64 {
    let figures = report.0["ratios"].as_array().unwrap();
    let mut found = figures.iter();
    let found = found.find(|figure| figure["vm"] == vm && figure["name"] == name);
    let found = found.unwrap_or_else(|| panic!("VM {vm} tells no {name}: {}", report.0));
    found["value"].as_f64().unwrap()
}

/// The words that the guest of a VM prints.
fn map(outcome: &Outcome, vm: usize) -> Vec<u32> {
    let begin = format!("vm{vm}| multiprocessors: ");
    let line = outcome.stderr.lines().find(|line| line.starts_with(&begin));
    let line = line.unwrap_or_else(|| panic!("no line `{begin}`: {outcome:?}"));
    let (_, words) = line.trim_end_matches(']').split_once('[').unwrap();
    let words = words.split(", ").map(|word| u32::from_str_radix(word, 16));
    words.map(|word| word.unwrap()).collect()
}

#[test]
fn a_vm_sees_no_more_multiprocessors_than_it_was_given() {
    if !kvm("a limit on multiprocessors") {
        return;
    }
    let _alone = alone();
    let [vm] = &multiprocessors("cuda,sms=32,memory=256", 1)[..] else {
        panic!("one VM");
    };
    assert_eq!(vm.given, 32);
    assert!((1..=32).contains(&vm.count()), "{} are seen", vm.count());
}

#[test]
fn what_the_hardware_cannot_divide_is_rounded_and_vms_have_their_own() {
    if !kvm("two limits on multiprocessors") {
        return;
    }
    let _alone = alone();
    let [first, second] = &multiprocessors("cuda,sms=20,memory=256", 2)[..] else {
        panic!("two VMs");
    };
    for vm in [first, second] {
        assert_eq!(
            vm.given, 24,
            "20 is rounded up to a multiple of 8, and the device says so"
        );
        assert!((1..=24).contains(&vm.count()), "{} are seen", vm.count());
    }
    let both = first.seen.iter().zip(&second.seen);
    assert!(
        both.clone().all(|(a, b)| a & b == 0),
        "multiprocessors of both: {:x?} and {:x?}",
        first.seen,
        second.seen
    );
}
