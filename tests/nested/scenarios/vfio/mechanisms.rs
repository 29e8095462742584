//! Exclusive pass-through beside the other ways to virtualize a GPU: `bench exits --vfio`.

use causeway_nested::devices::{EDU, HostDevice, MEMORY, MEMORY_BYTES};

use super::hand_out;
use crate::machines::machine_with_devices;
use crate::mechanisms::{Measured, measure};

/// Why a mechanism has no cells of a workload, or of everything.
#[track_caller]
fn reason<'r>(report: &'r Measured, what: &str) -> &'r str {
    let mut rows = report.0["missing"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["what"] == what && row["mechanism"] == "passthrough");
    let row = row.unwrap_or_else(|| panic!("no row of {what}: {}", report.0["missing"]));
    row["reason"].as_str().expect("a reason")
}

#[test]
fn memory_of_a_device_is_loaded_stored_and_copied_without_an_exit_as_the_host_does() {
    let Some(machine) = machine_with_devices("memory of a device in bench exits") else {
        return;
    };
    hand_out(&machine, &[MEMORY]);
    let mechanisms = ["--mechanism", "trap,passthrough,native-bar"];
    let only = ["--only", "store,load,copy-in,copy-out,submit,allocate"];
    let device = ["--vfio", MEMORY.address];
    let (_, report) = measure(&machine, &[mechanisms, only, device].concat());
    assert_eq!(report.0["passed"], true);
    let passed = report.cells("passthrough");
    assert_eq!(passed.len(), 2 + 2 * 4);
    for (name, cell) in &passed {
        report.assert_exits("passthrough", name, 0.0, "mmio_exits");
        report.assert_exits("passthrough", name, 0.0, "io_exits");
        let ratio = cell["over_native"]["median"].as_f64();
        assert!(ratio > Some(0.0), "{name} is compared with nothing: {cell}");
    }
    let natively = report.cells("native-bar");
    let names = |cells: &[(String, _)]| cells.iter().map(|(name, _)| name.clone()).collect();
    let [ours, theirs]: [Vec<String>; 2] = [names(&passed), names(&natively)];
    assert_eq!(ours, theirs);
    assert!(natively.iter().all(|(_, cell)| cell["exits"].is_null()));
    report.assert_exits("trap", "load 65536", 1.0, "mmio_exits");
    assert!(reason(&report, "submit").contains("launches kernels"));
    assert!(reason(&report, "allocate").contains("allocates memory"));
    let device = &report.0["devices"][0];
    assert_eq!(device["address"], MEMORY.address);
    let bars = device["bars"].as_array().expect("BARs");
    let memory = bars.iter().find(|bar| bar["bar"] == 2).expect("BAR 2");
    assert_eq!(memory["mapped_bytes"], MEMORY_BYTES, "{device}");
    assert_eq!(
        (&device["trapped_reads"], &device["trapped_writes"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn a_device_that_cannot_be_measured_is_a_row_that_says_why() {
    const ABSENT: &str = "0000:1f:1f.7";
    let Some(machine) = machine_with_devices("devices without memory in bench exits") else {
        return;
    };
    hand_out(&machine, &[EDU]);
    let without = |address: &str, parts: &[&str]| {
        let words = [
            "--only",
            "load",
            "--mechanism",
            "trap,passthrough,native-bar",
        ];
        let (outcome, report) = measure(&machine, &[&words, &["--vfio", address][..]].concat());
        let reason = reason(&report, "everything");
        for part in parts {
            assert!(reason.contains(part), "`{part}`: {reason}");
        }
        assert!(outcome.stdout.contains(reason), "{}", outcome.text());
        report.assert_exits("trap", "load 65536", 1.0, "mmio_exits");
        assert_eq!(report.0["devices"].as_array().map(Vec::len), Some(0));
    };
    let HostDevice { address, .. } = EDU;
    // It has registers.
    without(address, &[address, "prefetchable"]);
    without(ABSENT, &[ABSENT]);
}
