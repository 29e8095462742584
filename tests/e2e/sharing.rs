//! Several VMs on one mediator.

use crate::command::{Scratch, alone, kvm};
use crate::report;

#[test]
fn two_guests_share_an_allocation_and_a_forbidden_write_is_refused() {
    if !kvm("sharing") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "sharing", "--vms", "2"]);
    outcome.assert_passed();
    assert_eq!(report.outcome(), "pass");
    assert_eq!(report.results().len(), 2);
    assert!(
        report.results().iter().all(|(_, passed)| *passed),
        "{}",
        report.0
    );
}

#[test]
fn guests_of_a_file_exchange_mail_only_if_the_run_allows_it() {
    if !kvm("mail of guests of a file") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let image = scratch.file("sharing.elf", causeway_embedded::image("sharing").unwrap());
    let words = ["--kernel", &image, "--vms", "2", "--timeout", "100"];
    let (outcome, _) = report::run(&scratch, &words);
    assert_ne!(outcome.code, 0, "{outcome:?}");
    let said = "guests of this run exchange none: start the run with --mailboxes";
    assert!(outcome.stderr.contains(said), "{outcome:?}");
    let (outcome, _) = report::run(&scratch, &[&words[..], &["--mailboxes"]].concat());
    outcome.assert_passed();
}

#[test]
fn a_hostile_guest_leaves_the_other_verified() {
    if !kvm("hostile") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "hostile", "--vms", "2"]);
    outcome.assert_passed();
    assert_eq!(report.outcome(), "pass");
    assert!(
        report.results().iter().all(|(_, passed)| *passed),
        "{}",
        report.0
    );
}

#[test]
fn a_hostile_guest_alone_passes_too() {
    if !kvm("hostile alone") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "hostile"]);
    outcome.assert_passed();
    // It rings a thousand doorbells, and says that it rang none.
    let rings = report.phase("registers");
    assert_eq!(rings.doorbells(), 0);
    assert!(rings.kvm_doorbells() >= 1000, "{rings:?}");
}

#[test]
fn three_guests_compute_on_one_mediator() {
    if !kvm("three VMs") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--vms", "3"]);
    outcome.assert_passed();
    report.assert_exit_free();
    assert_eq!(report.results().len(), 3);
}
