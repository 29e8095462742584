//! NUMA nodes of the host (Documentation/ABI/testing/sysfs-bus-pci in the Linux kernel).

use std::fs;
use std::path::Path;

/// Where the kernel tells about PCI devices.
const DEVICES: &str = "/sys/bus/pci/devices";

/// Returns the number of the node that is nearest to the PCI device with this address, such as
/// `0000:01:00.0`; `None` if the host does not tell.
pub fn of_device(address: &str) -> Option<u32> {
    let text = fs::read_to_string(Path::new(DEVICES).join(address).join("numa_node"));
    // -1 where the firmware does not tell.
    text.ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_there_is_not_has_no_node() {
        assert_eq!(of_device("ffff:ff:1f.7"), None);
    }
}
