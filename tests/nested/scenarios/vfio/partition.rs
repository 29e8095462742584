//! The memory of one device, partitioned among several guests.

use causeway_nested::devices::MEMORY;

use super::hand_out;
use crate::machines::{machine_with_devices, run};

#[test]
fn guests_have_parts_of_one_devices_memory_and_see_nothing_of_each_other() {
    let Some(machine) = machine_with_devices("partitions of memory") else {
        return;
    };
    hand_out(&machine, &[MEMORY]);
    let gpu = format!("vfio:{},memory=40", MEMORY.address);
    let (outcome, report) = run(
        &machine,
        &["--guest", "partition", "--vms", "2", "--gpu", &gpu],
    );
    outcome.assert_code(0);
    report.assert_exit_free();
    for accesses in ["stores to", "loads from"] {
        let phase = report.phase(&format!("2*10^6 {accesses} the device's memory"));
        assert_eq!(phase.operations(), 2 << 20);
    }
    let text = outcome.text();
    assert!(text.contains("copies and fills"), "no way out: {text}");
}
