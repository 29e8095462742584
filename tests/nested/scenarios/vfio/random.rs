//! Random numbers of a virtio device, passed through to a Linux guest and used by the drivers of
//! its kernel.

use causeway_nested::devices::RANDOM;

use super::edu::device;
use super::hand_out;
use crate::machines::{assert_data_stays_inside, machine_with_devices};
use crate::workloads::passes;

#[test]
fn a_guests_stock_driver_uses_a_device_that_is_passed_through() {
    let Some(machine) = machine_with_devices("random numbers passed through") else {
        return;
    };
    hand_out(&machine, &[RANDOM]);
    let (outcome, report) = passes(&machine, "random", &["--vfio", RANDOM.address], &[]);
    let text = outcome.text();
    assert!(text.contains("64 numbers, all different"), "{text}");
    // Requests, answers and interrupts: none of it leaves the guest for user space.
    assert_data_stays_inside(&report);
    let device = device(&report, 0, 0);
    assert_eq!(device["interrupts"]["mode"], "MSI-X", "{device}");
    // The page with the table of messages is trapped.
    assert_ne!(device["trapped_writes"], 0, "{device}");
}
