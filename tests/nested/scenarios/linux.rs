//! Linux guests: stock kernels boot, end, and fail as they should.

use causeway_nested::{FIRST_WORD, Lease};

use crate::laboratory::{
    FIRST_WORD_INITRAMFS, GENERIC_KERNEL, KERNEL, has_generic_kernel, machine, run,
};

#[track_caller]
fn boot(machine: &Lease, kernel: &str, vcpus: &str, memory_mib: &str) {
    let guest = ["--kernel", kernel, "--initramfs", FIRST_WORD_INITRAMFS];
    let machine_words = ["--vcpus", vcpus, "--memory", memory_mib];
    let (outcome, report) = run(machine, &[guest, machine_words].concat());
    outcome.assert_code(0);
    let said = outcome.stderr.contains(FIRST_WORD);
    assert!(said, "its first program never ran: {}", outcome.text());
    assert_eq!(report.results(), [("turned off", true)]);
}

#[test]
fn the_cloud_kernel_boots_on_one_processor_in_256_mib() {
    let Some(machine) = machine("cloud kernel, small") else {
        return;
    };
    boot(&machine, KERNEL, "1", "256");
}

#[test]
fn the_cloud_kernel_boots_on_four_processors_in_3_gib() {
    let Some(machine) = machine("cloud kernel, large") else {
        return;
    };
    boot(&machine, KERNEL, "4", "3072");
}

#[test]
fn the_generic_kernel_boots_on_one_and_on_four_processors() {
    let test = "generic kernel";
    let Some(machine) = machine(test).filter(|_| has_generic_kernel(test)) else {
        return;
    };
    boot(&machine, GENERIC_KERNEL, "1", "3072");
    boot(&machine, GENERIC_KERNEL, "4", "256");
}

#[test]
fn a_kernel_that_panics_is_told_with_what_it_said_last() {
    let Some(machine) = machine("guest's kernel panic") else {
        return;
    };
    // Nothing to run as the first program.
    let (outcome, report) = run(&machine, &["--kernel", KERNEL]);
    outcome.assert_code(5);
    assert_eq!(report.outcome(), "fail");
    for part in ["kernel panicked", "Unable to mount root fs"] {
        assert!(
            outcome.stderr.contains(part),
            "`{part}`: {}",
            outcome.text()
        );
    }
}
