//! What single guests compute, and how often they exit, exactly.

use causeway_kernels::CASES;

use crate::bare_images::{elf, exit, print, store_loop};
use crate::command::{Scratch, alone, kvm};
use crate::report;
use crate::schema;

#[test]
fn compute_verifies_every_kernel_and_its_data_path_never_exits() {
    if !kvm("compute") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &[]);
    outcome.assert_passed();
    report.assert_exit_free();
    for case in CASES {
        let found = report
            .phases()
            .any(|phase| phase.is_data() && phase.name().contains(case.name));
        assert!(
            found,
            "no phase of the data path is called after {}",
            case.name
        );
    }
    assert!(
        outcome.stdout.contains("vector_add"),
        "the table names each phase: {outcome:?}"
    );
    assert!(report.0["boot_us"].as_u64().is_some());
}

#[test]
fn compute_verifies_every_kernel_from_two_virtual_cpus() {
    if !kvm("compute on two virtual CPUs") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "compute", "--vcpus", "2"]);
    outcome.assert_passed();
    report.assert_exit_free();
}

#[test]
fn stream_loads_stores_and_submits_without_an_exit() {
    if !kvm("stream") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "stream"]);
    outcome.assert_passed();
    report.assert_exit_free();
    // This guest is honest.
    for phase in report.phases() {
        assert_eq!(phase.kvm_doorbells(), phase.doorbells(), "{phase:?}");
    }
    let of = |least: u64| {
        report
            .phases()
            .filter(move |phase| phase.is_data() && phase.operations() >= least)
    };
    assert!(
        of(100_000_000).count() >= 2,
        "10^8 loads and 10^8 stores: {}",
        report.0
    );
    let packets: Vec<_> = of(1_000_000)
        .filter(|phase| phase.name().contains("packet"))
        .collect();
    assert!(!packets.is_empty(), "10^6 packets: {}", report.0);
    assert!(
        packets.iter().all(|phase| phase.doorbells() == 0),
        "{}",
        report.0
    );
    assert!(
        of(100_000).any(|phase| phase.name().contains("pieces")),
        "10^5 pieces of a pool: {}",
        report.0
    );
    assert!(!report.0["ratios"].as_array().unwrap().is_empty());
}

#[test]
fn exits_are_counted_exactly_by_kvm_and_by_the_vmm() {
    if !kvm("exact counts") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--guest", "exits"]);
    outcome.assert_passed();
    report.phase("nothing").assert_exits(0, 0);
    report.phase("100 port loads").assert_exits(0, 100);
    report.phase("100 register loads").assert_exits(100, 0);
    report.phase("1000000 stores to RAM").assert_exits(0, 0);
}

#[test]
fn a_guest_of_a_few_bytes_exits_once_for_each_byte_it_prints() {
    if !kvm("a guest of a few bytes") {
        return;
    }
    let mut code = print("hello, host\n");
    code.extend(store_loop(0x8_0000, 1_000_000));
    code.extend(exit(0));
    let scratch = Scratch::new();
    let image = scratch.file("guest.elf", &elf(&code));
    let (outcome, report) = report::run(&scratch, &["--kernel", &image, "--memory", "64"]);
    outcome.assert_passed();
    assert!(
        format!("{}{}", outcome.stdout, outcome.stderr).contains("hello, host"),
        "{outcome:?}"
    );
    report.vm(0).assert_exits(0, 12 + 1);
    assert_eq!(report.vm(0).vmm("io:console:data"), 12);
    assert_eq!(report.vm(0).vmm("io:testdev:exit"), 1);
}

#[test]
fn the_report_goes_to_standard_output_in_place_of_the_table() {
    if !kvm("a report on standard output") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.file("guest.elf", &elf(&exit(0)));
    let outcome = scratch.run(&["run", "--kernel", &image, "--memory", "64", "--json", "-"]);
    outcome.assert_passed();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["schema"], "causeway.report/1");
    schema::assert_valid(&report);
    assert_eq!(report["guest"], image.as_str());
}

#[test]
fn a_quota_that_is_too_small_fails_the_guest_and_says_so() {
    if !kvm("quota") {
        return;
    }
    let scratch = Scratch::new();
    let (outcome, report) = report::run(&scratch, &["--gpu", "software,memory=1"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(report.outcome(), "fail");
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("quota"), "{outcome:?}");
}
