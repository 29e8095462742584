//! Interrupts: raised by the mediator, delivered through KVM's chips, counted by the guest's
//! kernel, and slept for by a program.

use crate::machines::{KERNEL, install, machine, run};
use crate::report::Report;

/// A kernel that has no modules beside it.
const LONELY_KERNEL: &str = "/tmp/vmlinuz";

/// A figure that the program reports, by its name.
#[track_caller]
fn figure(report: &Report, name: &str) -> u64 {
    let figures = report.0["ratios"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["name"] == name);
    let found = found.unwrap_or_else(|| panic!("there is no figure `{name}` in {}", report.0));
    found["value"].as_f64().unwrap() as u64
}

/// Each wait begins to be watched once, is asleep when its fence is released, and so is ended by an
/// interrupt that was raised for it: as many are raised as there are waits. None is raised before
/// the one before it was taken, since the program is asleep only when the line is free again: so
/// the kernel counts each of them, and no other. The shim looks for each that the kernel counted,
/// but for the last wait's if its time slice ended in the moment in which its fence was released.
#[test]
fn interrupts_that_are_raised_are_delivered_and_counted_and_wake_who_sleeps() {
    let Some(machine) = machine("interrupts") else {
        return;
    };
    let program = install(&machine, "interrupts");
    let words = [
        "--kernel",
        KERNEL,
        "--program",
        &program,
        "--",
        "--threads",
        "2",
    ];
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    let waits = figure(&report, "waits that slept");
    let raised = report.0["vms"][0]["session"]["interrupts"]
        .as_u64()
        .unwrap();
    let counted = figure(&report, "interrupts that the guest's kernel counted");
    let woken = figure(&report, "interrupts that woke the program");
    let text = outcome.text();
    assert!(waits >= 40, "{text}");
    assert_eq!(
        (raised, counted),
        (waits, waits),
        "raised and counted: {text}"
    );
    assert!((waits - 1..=waits).contains(&woken), "{woken}: {text}");
    // KVM has injected at least as many; those of the guest's own timer are among them.
    let injected: u64 = report
        .phases()
        .map(|phase| phase.kvm("irq_injections"))
        .sum();
    assert!(injected >= waits, "{injected}: {text}");
    // Of configuration space, two ports each: the handler's look and its mask, and the shim's
    // unmask.
    let ports: u64 = report.phases().map(|phase| phase.vmm("io:pci:")).sum();
    assert_eq!(ports, 6 * waits, "{text}");
    let data = report.phase("packets, and a wait that spins");
    let kvm = (data.kvm("mmio_exits"), data.kvm("io_exits"));
    let own = (data.vmm("mmio:"), data.vmm("io:"));
    assert_eq!((kvm, own, data.doorbells()), ((0, 0), (0, 0), 0), "{text}");
}

/// Without `uio_pci_generic`, which is where the modules of a kernel are not found, sleeping waits
/// look now and then.
#[test]
fn without_a_driver_for_the_function_programs_work_and_nothing_interrupts() {
    let Some(machine) = machine("no driver for the function") else {
        return;
    };
    let kernel = machine.read(KERNEL).unwrap();
    machine.write(LONELY_KERNEL, 0o644, &kernel);
    let info = install(&machine, "causeway-info");
    let words = ["--kernel", LONELY_KERNEL, "--program", &info];
    let (outcome, _) = run(&machine, &words);
    outcome.assert_code(0);
    let text = outcome.text();
    assert!(!text.contains("/dev/uio0"), "{text}");
    assert_eq!(
        text.matches("programs get no interrupts").count(),
        1,
        "{text}"
    );
    let program = install(&machine, "processes");
    let limit = ["--gpu", "software,memory=64"];
    let words = ["--kernel", LONELY_KERNEL, "--program", &program];
    let (outcome, report) = run(&machine, &[&words[..], &limit].concat());
    outcome.assert_code(0);
    let session = &report.0["vms"][0]["session"];
    assert_eq!(session["interrupts"], 0, "{session}");
    assert_eq!(
        session["messages"]["notify"],
        serde_json::Value::Null,
        "{session}"
    );
}
