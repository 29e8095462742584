//! Devices of a host that has no IOMMU.

use crate::machines::{machine, refused};

/// Exit code: a device is not to be had.
const DEVICE: i32 = 9;

#[test]
fn a_host_without_an_iommu_is_told_how_to_get_one() {
    let Some(machine) = machine("pass-through without an IOMMU") else {
        return;
    };
    // Whatever is there: the agent's port.
    let words = ["--guest", "exits", "--vfio", "0000:00:01.0"];
    refused(&machine, &words, DEVICE, &["IOMMU", "intel_iommu=on"]);
}
