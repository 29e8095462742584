//! QEMU's educational device, passed through: registers, DMA, interrupts, and DMA to where there is
//! nothing.

use causeway_nested::devices::{EDU, OTHER_EDU};
use serde_json::Value;

use super::hand_out;
use crate::machines::{assert_data_stays_inside, machine_with_devices, run};
use crate::report::Report;
use crate::workloads::passes;

/// Device `index` of VM `vm` in a report.
pub fn device(report: &Report, vm: usize, index: usize) -> &Value {
    let device = &report.0["vms"][vm]["devices"][index];
    assert!(device.is_object(), "no device in {}", report.0["vms"][vm]);
    device
}

/// Asserts that all of the registers were mapped, and that 10^6 accesses to them were no exits.
#[track_caller]
fn assert_registers_mapped(report: &Report) {
    assert_data_stays_inside(report);
    let accesses = report.phase("10^6 accesses to registers");
    assert_eq!(accesses.operations(), 1_000_000);
    let device = device(report, 0, 0);
    assert_eq!(device["address"], EDU.address);
    assert_eq!(device["id"], "1234:11e8");
    assert_eq!(device["bars"][0]["mapped_bytes"], 1 << 20, "{device}");
    assert_eq!(device["trapped_reads"], 0, "{device}");
    assert_eq!(device["trapped_writes"], 0, "{device}");
}

#[test]
fn a_bare_guest_drives_a_device_by_registers_dma_and_messages_at_either_level() {
    let Some(machine) = machine_with_devices("pass-through to bare guests") else {
        return;
    };
    hand_out(&machine, &[EDU]);
    for level in ["3", "0"] {
        let words = ["--guest", "edu", "--vfio", EDU.address, "--cpl", level];
        let (outcome, report) = run(&machine, &words);
        outcome.assert_code(0);
        assert_registers_mapped(&report);
        let messages = report
            .phases()
            .filter(|phase| phase.name() == "an interrupt");
        assert_eq!(messages.count(), 32);
        assert_eq!(device(&report, 0, 0)["interrupts"]["mode"], "MSI");
        if level == "0" {
            assert_eq!(report.phase("10^4 interrupts").operations(), 10_000);
            let text = outcome.text();
            assert!(text.contains("10000 interrupts were taken"), "{text}");
        }
    }
}

#[test]
fn a_program_on_linux_drives_a_device_by_registers_dma_and_its_pin() {
    let Some(machine) = machine_with_devices("pass-through to Linux") else {
        return;
    };
    hand_out(&machine, &[EDU]);
    let (outcome, report) = passes(&machine, "edu", &["--vfio", EDU.address], &[]);
    assert_registers_mapped(&report);
    let text = outcome.text();
    assert!(text.contains("50 interrupts by its pin"), "{text}");
    assert_eq!(device(&report, 0, 0)["interrupts"]["mode"], "INTx");
}

#[test]
fn dma_outside_a_guests_memory_faults_in_the_iommu_and_harms_nobody() {
    const OUTSIDE: &str = "0x8000000";
    let Some(machine) = machine_with_devices("stray DMA") else {
        return;
    };
    hand_out(&machine, &[EDU, OTHER_EDU]);
    let guest = ["--guest", "edu", "--vms", "2", "--memory", "64"];
    let devices = ["--vfio", EDU.address, "--vfio", OTHER_EDU.address];
    let arguments = format!("stray={OUTSIDE}");
    let words = [&guest[..], &devices, &["--arguments", &arguments]].concat();
    let before = machine.kernel_log().lines().count();
    let (outcome, report) = run(&machine, &words);
    // Both guests have used their devices after that, or beside it.
    outcome.assert_code(0);
    assert_data_stays_inside(&report);
    let text = outcome.text();
    assert!(text.contains("reached for 0x8000000"), "{text}");
    let log = machine.kernel_log();
    let mut lines = log.lines().skip(before);
    let named = |line: &str| line.contains("DMAR") && line.contains("[01:00.0]");
    let fault = lines.find(|line| named(line) && line.contains(OUTSIDE));
    assert!(fault.is_some(), "no fault of the IOMMU's in {log}");
}
