//! Phases of a Linux program, and the exits of its life.

use crate::machines::{KERNEL, assert_data_stays_inside, install, machine, run};

#[test]
fn a_linux_program_marks_phases_by_the_shim_and_by_a_program() {
    let Some(machine) = machine("phases of a Linux program") else {
        return;
    };
    let program = install(&machine, "phases");
    let tool = format!("{}:/bin/causeway-info", install(&machine, "causeway-info"));
    let words = ["--kernel", KERNEL, "--program", &program, "--file", &tool];
    let (outcome, report) = run(&machine, &[&words[..], &["--require-zero-exits"]].concat());
    outcome.assert_code(0);
    assert!(
        outcome.text().contains("phases: verified"),
        "{}",
        outcome.text()
    );
    assert_data_stays_inside(&report);
    assert_eq!(report.0["data_path"], "none", "{}", outcome.text());
    for name in ["by the shim", "by the tool"] {
        let phase = report.phase(name);
        assert!(
            phase.is_data() && phase.operations() == 10_000_000,
            "{phase:?}"
        );
    }
    assert_eq!(report.phase("port loads").vmm("io:testdev"), 5);
    assert!(!report.phase("left open").is_data());
    // The exit that ends the VM comes after the program's life.
    assert_eq!(report.vm(0).vmm("io:testdev:exit"), 1);
    assert_eq!(report.program(0).vmm("io:testdev:exit"), 0);
    assert_ne!(report.program(0).vmm("io:testdev:record"), 0);
    assert!(
        report.program(0).vmm("") < report.vm(0).vmm(""),
        "{}",
        report.0
    );
}
