//! Interrupts by a table of messages (MSI-X), of a device that is passed through to a bare guest.

use causeway_nested::devices::{DOORBELL, DOORBELL_VECTORS};

use super::edu::device;
use super::hand_out;
use crate::machines::{machine_with_devices, run};

#[test]
fn messages_of_a_table_arrive_without_an_exit_and_masked_ones_wait() {
    let Some(machine) = machine_with_devices("tables of messages") else {
        return;
    };
    hand_out(&machine, &[DOORBELL]);
    let words = ["--guest", "doorbell", "--vfio", DOORBELL.address];
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    // BAR 0 is smaller than a page, so its stores are exits; nothing that comes of them is.
    let rung = report.phase("doorbells");
    let exits = (rung.kvm("mmio_exits"), rung.kvm("io_exits"));
    assert_eq!(exits, (DOORBELL_VECTORS as u64, 0));
    assert_eq!(rung.vmm("mmio:"), DOORBELL_VECTORS as u64);
    let device = device(&report, 0, 0);
    assert_eq!(device["interrupts"]["mode"], "MSI-X", "{device}");
    assert_eq!(device["interrupts"]["vectors"], DOORBELL_VECTORS);
}
